// SPDX-License-Identifier: MIT
#include "serve/api/choices.h"

#include "core/log.h"
#include "serve/api/api_error.h"

namespace nibble {

Choices::Choices(std::vector<std::shared_ptr<ReplyStream>> streams)
    : streams_(std::move(streams)), ended_(streams_.size()), left_(streams_.size()) {}

Choices::~Choices() {
  for (const auto& s : streams_) s->cancel();
}

bool Choices::poll(const News& on_news) {
  // One reply wakes us when it has news; among several each is looked at in turn.
  const std::chrono::milliseconds at_most(left_ > 1 ? 5 : 100);
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (ended_[i]) continue;
    ReplyStream::News news = streams_[i]->wait(at_most);
    if (news.empty()) continue;
    if (news.end) {
      ended_[i] = true;
      --left_;
      tokens_ += news.end->tokens;
      if (i % per_prompt_ == 0) {
        prompt_tokens_ += news.end->prompt_tokens;
        reused_tokens_ += news.end->reused_tokens;
      }
    }
    on_news(i, *streams_[i], news);
  }
  return left_ > 0;
}

bool Choices::run(const News& on_news, const std::function<bool()>& gone) {
  while (poll(on_news)) {
    if (gone && gone()) return false;
  }
  return true;
}

std::string finish_reason_text(const ReplyEnd& end) {
  if (!end.reason) throw ApiError(503, "server_error", end.error, "", "ended");
  switch (*end.reason) {
    case FinishReason::stop:
    case FinishReason::repetition: return "stop";
    // A sign of broken weights, and what a request can bring about, too ("say !!!!"): whoever asked
    // has the text, and whoever runs the server is told.
    case FinishReason::collapse:
      log_warning(
          "a reply was ended because it said token 0 again and again; nibble check "
          "says whether the model is broken");
      return "stop";
    case FinishReason::length:
    case FinishReason::context_full:
    case FinishReason::timeout:
    case FinishReason::cancelled: return "length";
    case FinishReason::not_finite: break;
  }
  throw ApiError(500, "server_error",
                 fmt::format("the model is broken, it ended with '{}': nibble check says more",
                             finish_reason_name(*end.reason)),
                 "", std::string(finish_reason_name(*end.reason)));
}

}  // namespace nibble

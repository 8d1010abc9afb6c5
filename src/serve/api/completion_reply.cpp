// SPDX-License-Identifier: MIT
#include "serve/api/completion_reply.h"

#include <ctime>

#include "core/json.h"
#include "serve/api/api_error.h"
#include "serve/api/choices.h"
#include "serve/api/reply_ids.h"
#include "serve/api/token_json.h"
#include "serve/api/usage.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

struct CompletionChoice {
  std::string text, finish;
  std::optional<CompletionLogprobs> logprobs;
  bool begun = false, news = false;
};

class CompletionAnswer {
 public:
  CompletionAnswer(CompletionRequest&& request, const ServedModel& model, RequestQueue& queue)
      : request_(std::move(request)),
        model_(model),
        id_(new_reply_id("cmpl")),
        created_(std::time(nullptr)),
        choices_(request_.prompts.size() * size_t(request_.common.n)),
        streams_(submit(request_, queue)) {
    streams_.set_choices_per_prompt(size_t(request_.common.n));
    for (CompletionChoice& c : choices_) {
      if (request_.logprobs) c.logprobs.emplace(*model_.tokenizer, *request_.logprobs);
    }
  }

  ApiResponse whole(const std::function<bool()>& gone) {
    const auto take = [&](size_t i, ReplyStream& s, ReplyStream::News& n) { this->take(i, s, n); };
    if (!streams_.run(take, gone)) return {499, "application/json", "", {}, {}};
    Json j = head();
    j["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      j["choices"].push_back(choice_json(i, choices_[i].finish));
    }
    j["usage"] = usage_json(streams_);
    return {200, "application/json", json_text(j), {}, {}};
  }

  bool next(std::string& out) {
    const bool usage = request_.common.stream_usage;
    const auto more = [&] {
      return streams_.poll([&](size_t i, ReplyStream& s, ReplyStream::News& n) {
        take(i, s, n);
        CompletionChoice& c = choices_[i];
        if (c.text.empty() && !c.news && !n.end) return;
        Json j = head();
        j["choices"] = Json::array({choice_json(i, n.end ? Json(c.finish) : Json())});
        if (usage) j["usage"] = Json();
        out += sse_event(j);
        c.text.clear();
        c.news = false;
      });
    };
    return next_sse(done_, out, more, [&] {
      if (!usage) return;
      Json j = head();
      j["choices"] = Json::array();
      j["usage"] = usage_json(streams_);
      out += sse_event(j);
    });
  }

 private:
  static std::vector<std::shared_ptr<ReplyStream>> submit(const CompletionRequest& r,
                                                          RequestQueue& queue) {
    std::vector<StreamRequest> all;
    for (size_t i = 0; i < r.prompts.size() * size_t(r.common.n); ++i) {
      const size_t n = size_t(r.common.n);
      all.push_back(r.common.request(r.prompts[i / n], int64_t(i % n)));
      all.back().top_logprobs = r.logprobs;
      all.back().prompt_logprobs = r.echo && r.logprobs;
      all.back().prompt_only = r.prompt_only;
    }
    return queue.submit(std::move(all));
  }

  Json head() const {
    return {
        {"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_.name}};
  }

  Json choice_json(size_t i, Json finish) {
    CompletionChoice& c = choices_[i];
    return {{"index", i},
            {"text", c.text},
            {"logprobs", c.logprobs ? c.logprobs->take() : Json()},
            {"finish_reason", std::move(finish)}};
  }

  void take(size_t i, ReplyStream& stream, ReplyStream::News& news) {
    CompletionChoice& c = choices_[i];
    const size_t p = i / size_t(request_.common.n);
    if (!std::exchange(c.begun, true)) {
      if (request_.echo) {
        c.text += request_.shown[p];
        if (c.logprobs) {
          c.logprobs->add_first(request_.prompts[p].front());
          for (const TokenFacts& facts : stream.take_prompt_facts()) c.logprobs->add(facts);
        }
      }
    }
    for (const ReplyToken& t : news.tokens) {
      c.text += t.text;
      if (t.facts && c.logprobs) c.logprobs->add(*t.facts);
      c.news |= t.facts.has_value();
    }
    if (news.end) {
      c.text += news.end->text;
      // Whoever adds up the tokens of a reply counts on one where one was chosen.
      if (c.logprobs && news.end->stop_facts) c.logprobs->add(*news.end->stop_facts);
      c.finish = finish_reason_text(*news.end);
    }
  }

  CompletionRequest request_;
  const ServedModel& model_;
  std::string id_;
  int64_t created_;
  bool done_ = false;
  std::vector<CompletionChoice> choices_;
  Choices streams_;
};

}  // namespace

ApiResponse answer_completion(const Json& body, const ServedModel& model, RequestQueue& queue,
                              const std::function<bool()>& gone) {
  CompletionRequest request = read_completion_request(body, model);
  const bool stream = request.common.stream;
  auto answer = std::make_shared<CompletionAnswer>(std::move(request), model, queue);
  if (!stream) return answer->whole(gone);
  ApiResponse r{200, "text/event-stream", "", {}, {}};
  r.next = [answer](std::string& out) { return answer->next(out); };
  return r;
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Replies on their way, several for one request: waits for news of any, knows when all have ended,
// and cancels what is still running when nobody waits any more.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "serve/schedule/reply_stream.h"

namespace nibble {

class Choices {
 public:
  explicit Choices(std::vector<std::shared_ptr<ReplyStream>> streams);
  ~Choices();
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  using News = std::function<void(size_t choice, ReplyStream& stream, ReplyStream::News& news)>;
  // Waits a little and tells what has come; false: every reply has ended.
  bool poll(const News& on_news);
  // Until all have ended, or `gone` says true: then the rest is cancelled and the result is false.
  bool run(const News& on_news, const std::function<bool()>& gone);

  int64_t prompt_tokens() const { return prompt_tokens_; }  // of each prompt once
  int64_t reused_tokens() const { return reused_tokens_; }
  int64_t tokens() const { return tokens_; }
  // Of how many choices one prompt is: for the sums.
  void set_choices_per_prompt(size_t n) { per_prompt_ = n; }

 private:
  std::vector<std::shared_ptr<ReplyStream>> streams_;
  std::vector<bool> ended_;
  size_t left_, per_prompt_ = 1;
  int64_t prompt_tokens_ = 0, reused_tokens_ = 0, tokens_ = 0;
};

// "stop" or "length"; an ApiError for a reply that has no good end.
std::string finish_reason_text(const ReplyEnd& end);

}  // namespace nibble

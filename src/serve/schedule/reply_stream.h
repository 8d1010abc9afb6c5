// SPDX-License-Identifier: MIT
// A reply on its way from the engine's thread to the one that reads it. The writer never waits: a
// slow reader costs memory (at most max_tokens of it) and not the others' time.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/schedule/request.h"

namespace nibble {

struct ReplyToken {
  int32_t id = 0;
  std::string text;  // what can be shown with this token; may be empty, may be more than its own
  std::optional<TokenFacts> facts;
};

struct ReplyEnd {
  std::optional<FinishReason> reason;  // none: `error` says why
  std::string error;
  std::string text;                      // what was held back until the end
  std::optional<TokenFacts> stop_facts;  // of the stop token, which is no part of the reply
  int64_t prompt_tokens = 0, reused_tokens = 0, tokens = 0;
  double first_token_s = 0, seconds = 0;  // since the request came
};

class ReplyStream {
 public:
  struct News {
    std::vector<ReplyToken> tokens;
    std::optional<ReplyEnd> end;
    bool empty() const { return tokens.empty() && !end; }
  };

  // The reader's side. What has come since the last call; empty when nothing came in time.
  News wait(std::chrono::milliseconds at_most);
  void cancel() { cancelled_ = true; }
  // Of the tokens of the prompt but the first, where they were asked for; complete before the first
  // token or the end.
  std::vector<TokenFacts> take_prompt_facts();

  // The writer's side.
  bool cancelled() const { return cancelled_; }
  void push(ReplyToken token);
  void push_prompt_facts(TokenFacts facts);
  void finish(ReplyEnd end);

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<ReplyToken> tokens_;
  std::vector<TokenFacts> prompt_;
  std::optional<ReplyEnd> end_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace nibble

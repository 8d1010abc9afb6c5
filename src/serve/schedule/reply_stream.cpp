// SPDX-License-Identifier: MIT
#include "serve/schedule/reply_stream.h"

#include <utility>

namespace nibble {

ReplyStream::News ReplyStream::wait(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, at_most, [&] { return !tokens_.empty() || end_; });
  return {std::exchange(tokens_, {}), end_};
}

std::vector<TokenFacts> ReplyStream::take_prompt_facts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(prompt_, {});
}

void ReplyStream::push(ReplyToken token) {
  {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(std::move(token));
  }
  news_.notify_all();
}

void ReplyStream::push_prompt_facts(TokenFacts facts) {
  const std::lock_guard lock(mutex_);
  prompt_.push_back(std::move(facts));
}

void ReplyStream::finish(ReplyEnd end) {
  {
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
  }
  news_.notify_all();
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
// A request between its arrival and its end. It lies where it was made: its parts know each other.
#pragma once
#include <memory>
#include <utility>

#include "serve/schedule/reply_stream.h"
#include "serve/schedule/reply_text.h"
#include "serve/schedule/token_choice.h"

namespace nibble {

class StreamJob {
 public:
  // UsageError for options out of their range. Time runs from here on.
  StreamJob(StreamRequest&& asked, const std::optional<Tokenizer>& tokenizer)
      : request(std::move(asked)),
        stream(std::make_shared<ReplyStream>()),
        text(tokenizer, request.stop),
        choice(request),
        progress(request.reply, [this](int32_t id) { return show(id); }) {}
  StreamJob(const StreamJob&) = delete;
  StreamJob& operator=(const StreamJob&) = delete;

  bool decoding() const { return started && fed == int64_t(request.prompt.size()); }
  int64_t prompt_left() const { return int64_t(request.prompt.size()) - fed; }

  StreamRequest request;
  std::shared_ptr<ReplyStream> stream;
  ReplyText text;
  TokenChoice choice;
  ReplyProgress progress;
  std::optional<TokenFacts> facts;  // of the token that is being taken in
  bool started = false;             // what the cache had of the prompt is settled
  int64_t fed = 0, reused = 0;      // tokens of the prompt in the cache; of them found there
  double first_token_s = 0;

 private:
  bool show(int32_t id) {
    if (first_token_s == 0) first_token_s = progress.seconds();
    choice.take(id);
    stream->push({id, text.push(id), std::exchange(facts, std::nullopt)});
    return !text.stopped() && !stream->cancelled();
  }
};

}  // namespace nibble

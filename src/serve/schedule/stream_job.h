// SPDX-License-Identifier: MIT
// A request between its arrival and its end. It lies where it was made: its parts know each other.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <vector>

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

  // What is to be in the cache before the reply begins, or goes on: the prompt, and of a reply that
  // gave its blocks back what it had said; its last token is fed by the step that follows.
  std::span<const int32_t> to_feed() const { return again.empty() ? request.prompt : again; }
  bool decoding() const { return started && fed == int64_t(to_feed().size()); }
  int64_t left_to_feed() const { return int64_t(to_feed().size()) - fed; }
  bool goes_on() const { return !progress.ids().empty(); }
  // It is not to go on, though nothing has ended it; a reply on its way is asked about its time by
  // ReplyProgress, after each token.
  std::optional<FinishReason> unwanted() const {
    if (stream->cancelled()) return FinishReason::cancelled;
    if (!decoding() && progress.timed_out()) return FinishReason::timeout;
    return std::nullopt;
  }
  ReplyEnd end(std::optional<FinishReason> reason, const std::string& error) {
    return {reason,
            error,
            text.flush(),
            facts,
            int64_t(request.prompt.size()),
            reused,
            int64_t(progress.ids().size()),
            first_token_s,
            progress.seconds()};
  }
  // Its blocks are given back: whatever it has in the cache is to be fed again.
  void begin_again() {
    const std::vector<int32_t>& said = progress.ids();
    started = false;
    fed = 0;
    again = request.prompt;
    if (!said.empty()) again.insert(again.end(), said.begin(), said.end() - 1);
  }

  StreamRequest request;
  std::shared_ptr<ReplyStream> stream;
  ReplyText text;
  TokenChoice choice;
  ReplyProgress progress;
  std::optional<TokenFacts> facts;  // of the token that is being taken in
  bool started = false;             // what the cache had of the prompt is settled
  int64_t fed = 0, reused = 0;      // tokens of to_feed() in the cache; of the prompt found there
  int64_t facts_told = 0;           // of the prompt's tokens
  uint64_t turn = 0;                // in which order requests were given a place for the first time
  std::vector<int32_t> again;
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

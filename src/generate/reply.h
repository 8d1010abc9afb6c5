// SPDX-License-Identifier: MIT
// One reply as it grows: which rules end it, and in which order they are asked. generate(),
// generate_batch() and whoever else feeds an engine hold one of these for each sequence, so that a
// reply ends with the same token whatever runs beside it.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "generate/sampler.h"

namespace nibble {

enum class FinishReason {
  stop,          // a stop token, which is not emitted
  length,        // max_tokens reached
  context_full,  // the cache has no room for another token
  timeout,
  cancelled,   // the callback said so
  repetition,  // the tail repeats itself and nothing else
  collapse,    // token 0 again and again: what broken weights print ("!!!!")
  not_finite,  // no logit to choose: NaN, or the largest is infinite
};
std::string_view finish_reason_name(FinishReason reason);
// Reasons that mean the model is broken rather than done.
bool is_unhealthy(FinishReason reason);

// Token 0 so many times in a row: the sign of NaN logits or misread scales in the predecessor's
// files.
constexpr int64_t kCollapseRun = 4;
bool tail_collapses(std::span<const int32_t> ids);

// A reply goes round in circles when a phrase of at most so many tokens is said so many times.
constexpr int64_t kLongestPhrase = 32, kRepeats = 4;
// True when the last tokens are one phrase of at most `longest` tokens repeated at least `times`
// times in a row (a single token: four times as often).
bool tail_repeats(std::span<const int32_t> ids, int64_t longest = kLongestPhrase,
                  int64_t times = kRepeats);

struct ReplyOptions {
  int64_t max_tokens = 256;
  std::vector<int32_t> stop_ids;
  SampleOptions sample;
  double timeout_s = 0;  // from the beginning of the prompt; 0: none
  bool stop_on_repetition = false;
  bool check_collapse = true;
};

// Called with each token as it is chosen; false cancels.
using TokenCallback = std::function<bool(int32_t id)>;

class ReplyProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // Time runs from here on. UsageError for options out of their range. Tests pass their own clock.
  explicit ReplyProgress(ReplyOptions options, TokenCallback on_token = {},
                         std::function<Clock::time_point()> clock = Clock::now);

  // Takes in the token the engine has chosen, -1 where no logit was finite; `room` is how many more
  // tokens the sequence's cache could take before this one is fed. Says why the reply ends, or
  // nothing: then ids().back() is the next token to feed. The first rule that applies, in this
  // order: not_finite and stop, which leave the token out; then, with the token in, cancelled,
  // collapse, repetition, length, timeout, context_full.
  std::optional<FinishReason> take(int32_t id, int64_t room);

  // Also to be asked while the prompt is fed.
  bool timed_out() const;
  double seconds() const;  // since the beginning

  // The number of the next random draw; the i-th token is drawn with i, whatever was drawn for
  // other replies.
  uint64_t next_draw() { return draws_++; }
  const SampleOptions& sample() const { return options_.sample; }
  const std::vector<int32_t>& ids() const { return ids_; }  // without the stop token
  int64_t tokens_left() const { return options_.max_tokens - int64_t(ids_.size()); }

 private:
  ReplyOptions options_;
  TokenCallback on_token_;
  std::function<Clock::time_point()> clock_;
  Clock::time_point start_;
  std::vector<int32_t> ids_;
  uint64_t draws_ = 0;
};

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Token by token generation with stop rules, health checks and timing, on top of an Engine.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/engine.h"
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

struct GenerateOptions {
  int64_t max_tokens = 256;
  std::vector<int32_t> stop_ids;
  SampleOptions sample;
  // Replay recomputes the whole sequence for every token instead of using the cache: slow, and the
  // plainest statement of what the cache must equal.
  bool replay = false;
  double timeout_s = 0;  // 0: none
  bool stop_on_repetition = false;
  bool check_collapse = true;
};

struct GenerateTiming {
  int64_t prompt_tokens = 0;  // fed, without those already in the cache
  int64_t generated_tokens = 0;
  double prefill_s = 0, decode_s = 0;
};

struct GenerateResult {
  std::vector<int32_t> ids;  // without the stop token
  FinishReason reason = FinishReason::length;
  GenerateTiming timing;
};

// Called with each token as it is chosen; false cancels.
using TokenCallback = std::function<bool(int32_t id)>;

// Feeds `prompt` on top of what the engine holds, then generates. Afterwards the engine holds the
// prompt and every generated token but, possibly, the last: `engine.tokens()` tells. A timeout
// while the prompt is still being fed leaves the prompt out again.
GenerateResult generate(Engine& engine, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const TokenCallback& on_token = {});

// True when the last tokens are one phrase of at most `longest` tokens repeated at least `times`
// times in a row (a single token: four times as often).
bool tail_repeats(std::span<const int32_t> ids, int64_t longest, int64_t times);

}  // namespace nibble

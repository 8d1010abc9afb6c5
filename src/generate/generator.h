// SPDX-License-Identifier: MIT
// Token by token generation with timing, on top of an Engine; when a reply ends is
// generate/reply.h.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "generate/engine.h"
#include "generate/reply.h"

namespace nibble {

struct GenerateOptions : ReplyOptions {
  // Replay recomputes the whole sequence for every token instead of using the cache: slow, and the
  // plainest statement of what the cache must equal.
  bool replay = false;
  // Asked between the chunks of a prompt; true leaves the prompt out again, as a timeout does.
  std::function<bool()> cancel = {};
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

// Feeds `prompt` on top of what the engine holds, then generates. Afterwards the engine holds the
// prompt and every generated token but, possibly, the last: `engine.tokens()` tells. A timeout
// while the prompt is still being fed leaves the prompt out again.
GenerateResult generate(Engine& engine, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const TokenCallback& on_token = {});

}  // namespace nibble

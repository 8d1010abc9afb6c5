// SPDX-License-Identifier: MIT
// Replies to many prompts at once: as many sequences as the engine has, and where one ends the next
// prompt takes its place.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "generate/batch_engine.h"
#include "generate/reply.h"

namespace nibble {

struct BatchPrompt {
  std::vector<int32_t> ids;
  int64_t max_tokens = 64;
  bool stop_on_repetition = false;
};
struct BatchReply {
  std::vector<int32_t> ids;  // without the stop token
  FinishReason reason = FinishReason::length;
};
struct BatchGenerateOptions {
  std::vector<int32_t> stop_ids;
  SampleOptions sample;  // the i-th prompt draws with seed + i, whatever runs beside it
};

// In the order of the prompts. Each reply is that of generate() on an engine of its own, bit for
// bit where the backend's products do not depend on the number of rows. UsageError for a prompt the
// context has no room for. `on_reply` hears how many are done and may cancel with false; what is
// missing then has FinishReason::cancelled. The engine's sequences are empty afterwards.
using Engines = std::span<BatchEngine* const>;
std::vector<BatchReply> generate_batch(BatchEngine& engine, std::span<const BatchPrompt> prompts,
                                       const BatchGenerateOptions& options,
                                       const std::function<bool(int64_t done)>& on_reply = {});
// On several engines of one model at the same time, each with a backend of its own: whichever has a
// sequence free takes the next prompt. `on_reply` is called by one at a time.
std::vector<BatchReply> generate_batch(Engines engines, std::span<const BatchPrompt> prompts,
                                       const BatchGenerateOptions& options,
                                       const std::function<bool(int64_t done)>& on_reply = {});

}  // namespace nibble

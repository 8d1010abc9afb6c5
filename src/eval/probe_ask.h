// SPDX-License-Identifier: MIT
// Puts probes to a model, many at a time.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "eval/probe_score.h"
#include "generate/batch_generate.h"

namespace nibble {

struct ProbeAskOptions {
  ChatTemplate style;
  WhichRules rules = WhichRules::target;
  std::optional<int64_t> max_tokens;  // instead of each probe's own
  std::vector<int32_t> stop_ids;
  SampleOptions sample;
};

// What the probes need and how many go at once: enough that each weight is read for many tokens,
// few enough that the cache stays below `cache_bytes`.
struct ProbeShape {
  int64_t context = 1;    // the longest prompt and its reply; at most what the model knows
  int64_t sequences = 1;  // at once
};
ProbeShape probe_shape(std::span<const Probe* const> probes, const Tokenizer& tokenizer,
                       const ProbeAskOptions& options, const Config& config, DType cache,
                       size_t cache_bytes = size_t(1) << 30);

// UsageError for a probe that does not fit the engines' context. Several engines of one model share
// the probes. `on_reply` as in generate_batch.
std::vector<ProbeResult> ask_probes(Engines engines, const Tokenizer& tokenizer,
                                    std::span<const Probe* const> probes,
                                    const ProbeAskOptions& options,
                                    const std::function<bool(int64_t done)>& on_reply = {});

}  // namespace nibble

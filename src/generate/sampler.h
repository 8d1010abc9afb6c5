// SPDX-License-Identifier: MIT
// From logits to the next token: greedy at temperature <= 0, else a seeded draw after repetition
// penalty, temperature, top-k, top-p and min-p, in that order. The rule itself is
// backend/sampling.h; Backend::sample follows it where the logits are.
#pragma once
#include <cstdint>
#include <span>

#include "backend/sampling.h"

namespace nibble {

struct SampleOptions {
  double temperature = 0;
  int64_t top_k = 0;              // 0: all; equal logits are kept or dropped together
  double top_p = 1;               // the token that crosses p is kept
  double min_p = 0;               // drops tokens below min_p times the most likely one
  double repetition_penalty = 1;  // > 1 makes tokens of the context less likely
  uint64_t seed = 123;

  bool operator==(const SampleOptions&) const = default;
};

// What the op is told; UsageError where an option is out of its range. The context is the caller's.
SampleRow sample_row(const SampleOptions& options, uint64_t draw);

// One generation's draws from logits in host memory: the i-th depends on the seed and i alone.
class Sampler {
 public:
  explicit Sampler(const SampleOptions& options) : row_(sample_row(options, 0)) {}
  // `context` is what the repetition penalty looks at. -1 where no logit can be chosen.
  int32_t next(std::span<const float> logits, std::span<const int32_t> context);

 private:
  SampleRow row_;
  SampleScratch scratch_;
};

}  // namespace nibble

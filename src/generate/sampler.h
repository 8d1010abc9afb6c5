// SPDX-License-Identifier: MIT
// From logits to the next token: greedy at temperature <= 0, else a seeded draw after repetition
// penalty, temperature, top-k, top-p and min-p, in that order.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace nibble {

struct SampleOptions {
  double temperature = 0;
  int64_t top_k = 0;              // 0: all
  double top_p = 1;               // the token that crosses p is kept
  double min_p = 0;               // drops tokens below min_p times the most likely one
  double repetition_penalty = 1;  // > 1 makes tokens of the context less likely
  uint64_t seed = 123;
};

// One generation's draws: the i-th depends on the seed and i alone.
class Sampler {
 public:
  explicit Sampler(const SampleOptions& options);
  // `context` is what the repetition penalty looks at. Greedy ties go to the lowest id. Logits
  // that are NaN are never chosen.
  int32_t next(std::span<const float> logits, std::span<const int32_t> context);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  void collect(std::span<const float> logits, std::span<const int32_t> context);
  SampleOptions options_;
  uint64_t draws_ = 0;
  std::vector<Candidate> candidates_;  // reused between calls
  std::vector<double> weights_;
};

}  // namespace nibble

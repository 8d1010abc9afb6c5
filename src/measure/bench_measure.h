// SPDX-License-Identifier: MIT
// The measurements of `nibble bench`: prompts of random ids, greedy decoding after them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "generate/engine.h"
#include "measure/bench_work.h"

namespace nibble {

enum class BenchPhase { both, prefill, decode };

struct BenchPlan {
  std::vector<int32_t> prompt_tokens;
  std::vector<int32_t> batches = {1};  // sequences decoded at once
  int64_t tokens = 32;                 // decoded in one sample, of each sequence
  int32_t repeat = 20, warmup = 1;
  BenchPhase phase = BenchPhase::both;
};

struct BenchRow {
  std::string phase;
  int64_t batch = 1, tokens = 0, past = 0;
  Work work;                  // of one pass: a whole prompt, or one token of each sequence
  double per_pass = 1;        // tokens a pass takes
  std::vector<double> rates;  // tokens per second, one per sample
};

// Prompts are measured one at a time, decoding with each of the batches; `options` is asked for
// those of an engine of so many sequences.
std::vector<BenchRow> measure_model(Backend& backend, const Model& model,
                                    const std::function<EngineOptions(int64_t)>& options,
                                    const BenchPlan& plan);

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "measure/bench_measure.h"

#include <algorithm>
#include <chrono>

#include "core/rng.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

std::vector<int32_t> random_ids(uint64_t stream, int64_t n, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) {
    ids.push_back(int32_t(philox(1, stream, uint64_t(i))[0] % uint64_t(vocabulary)));
  }
  return ids;
}

// Prompts differ from sample to sample, so that nothing is served from a cache it would miss in
// use. A sample ends with the first token of the reply in host memory.
BenchRow measure_prefill(BatchEngine& engine, const Model& model, const BenchPlan& plan,
                         int64_t prompt) {
  BenchRow row{"prefill",      1, prompt, 0, forward_work(model, prompt, 0, engine.options().cache),
               double(prompt), {}};
  for (int32_t i = 0; i < plan.warmup + plan.repeat; ++i) {
    const auto ids = random_ids(uint64_t(i), prompt, model.config.V);
    engine.truncate(0, 0);
    const auto start = Clock::now();
    engine.feed(0, ids);
    engine.sample({}, 0);
    if (i >= plan.warmup) row.rates.push_back(double(prompt) / seconds_since(start));
  }
  return row;
}

// The way generate() decodes: one token of each sequence at a time, the next ones chosen by the
// backend. Every sample goes on from the same prompts.
BenchRow measure_decode(BatchEngine& engine, const Model& model, const BenchPlan& plan,
                        int64_t prompt) {
  const int64_t batch = engine.sequences();
  // The middle of the decoded stretch stands for all of it.
  BenchRow row{"decode",
               batch,
               plan.tokens,
               prompt,
               forward_work(model, 1, prompt + plan.tokens / 2, engine.options().cache, batch),
               double(batch),
               {}};
  std::vector<DecodeStep> first(size_t(batch), DecodeStep{});
  for (int64_t s = 0; s < batch; ++s) {
    engine.truncate(s, 0);
    engine.feed(s, random_ids(uint64_t(s), prompt, model.config.V));
    first[size_t(s)].sequence = s;
    first[size_t(s)].id = std::max(0, engine.sample({}, 0));
  }
  for (int32_t i = 0; i < plan.warmup + plan.repeat; ++i) {
    std::vector<DecodeStep> steps = first;
    for (int64_t s = 0; s < batch; ++s) engine.truncate(s, prompt);
    const auto start = Clock::now();
    for (int64_t t = 0; t < plan.tokens; ++t) {
      const Follow follow = t + 1 < plan.tokens ? Follow::chosen : Follow::unknown;
      const std::span<const int32_t> next = engine.step(steps, follow);
      for (size_t s = 0; s < steps.size(); ++s) steps[s].id = std::max(0, next[s]);
    }
    if (i >= plan.warmup) {
      row.rates.push_back(double(batch * plan.tokens) / seconds_since(start));
    }
  }
  return row;
}

}  // namespace

std::vector<BenchRow> measure_model(Backend& backend, const Model& model,
                                    const std::function<EngineOptions(int64_t)>& options,
                                    const BenchPlan& plan) {
  std::vector<BenchRow> rows;
  for (const int32_t batch : plan.batches) {
    BatchEngine engine(backend, model, options(batch), batch);
    const bool prefill = plan.phase != BenchPhase::decode && batch == plan.batches.front();
    for (const int32_t prompt : plan.prompt_tokens) {
      if (prefill) rows.push_back(measure_prefill(engine, model, plan, prompt));
      if (plan.phase != BenchPhase::prefill) {
        rows.push_back(measure_decode(engine, model, plan, prompt));
      }
    }
  }
  return rows;
}

}  // namespace nibble

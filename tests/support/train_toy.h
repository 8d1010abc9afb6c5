// SPDX-License-Identifier: MIT
// Small training runs for tests: a model file on disk, settings for a backend, batches of tokens.
#pragma once
#include <memory>

#include "support/toy_dir.h"
#include "train/trainer.h"

namespace nibble::test {

// Everything in one type, as the reference backend computes; nothing is rounded.
inline TrainSettings wide_settings(DType type) {
  TrainSettings s;
  s.compute = s.stat = s.master = s.grad = type;
  s.optimizer.moments = MomentFormat::f32;
  return s;
}

inline void set_capacity(TrainSettings& s, int64_t tokens, int64_t sequences) {
  s.max_tokens = s.max_outputs = tokens;
  s.max_sequences = sequences;
}

// Sequences packed end to end; targets[i] < 0: row i is not scored.
inline PackedBatch packed_batch(const std::vector<std::vector<int32_t>>& ids,
                                const std::vector<std::vector<int32_t>>& targets) {
  PackedBatch b;
  for (size_t s = 0; s < ids.size(); ++s) {
    const int32_t begin = int32_t(b.ids.size()), n = int32_t(ids[s].size());
    b.sequences.push_back({begin, n, begin, n});
    for (int32_t i = 0; i < n; ++i) {
      b.ids.push_back(ids[s][size_t(i)]);
      b.positions.push_back(i);
      b.slots.push_back(begin + i);
      b.order.push_back(begin + i);
      if (targets[s][size_t(i)] < 0) continue;
      b.out_rows.push_back(begin + i);
      b.targets.push_back(targets[s][size_t(i)]);
    }
  }
  std::stable_sort(b.order.begin(), b.order.end(),
                   [&](int32_t x, int32_t y) { return b.ids[size_t(x)] < b.ids[size_t(y)]; });
  b.samples = int64_t(ids.size());
  return b;
}

// Random tokens, every row scored against its successor.
inline PackedBatch random_batch(std::vector<int64_t> lengths, int64_t vocabulary, uint64_t seed) {
  std::vector<std::vector<int32_t>> ids, targets;
  for (size_t s = 0; s < lengths.size(); ++s) {
    auto tokens = random_tokens(lengths[s] + 1, vocabulary, seed * 100 + s);
    ids.emplace_back(tokens.begin(), tokens.end() - 1);
    targets.emplace_back(tokens.begin() + 1, tokens.end());
  }
  return packed_batch(ids, targets);
}

// A model file and a state trained from it.
struct TrainToy {
  TemporaryDirectory directory{"train-toy"};
  std::unique_ptr<TensorSource> source;
  std::unique_ptr<TrainState> state;

  TrainToy(Backend& be, const Config& c, const TrainSettings& s) {
    const auto file = directory.path() / "model.safetensors";
    write_toy_weights(c, file);
    source = open_tensor_source(file);
    state = std::make_unique<TrainState>(be, c, *source, s);
  }
};

}  // namespace nibble::test

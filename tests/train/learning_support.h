// SPDX-License-Identifier: MIT
// Models trained from random weights on data made on the spot: reversal of sequences, and a source
// whose entropy is known.
#pragma once
#include <cmath>
#include <cstdio>
#include <functional>

#include "convert/init.h"
#include "support/tested_backend.h"
#include "support/train_toy.h"

namespace nibble::test {

using Tokens = std::vector<int32_t>;

// Random weights in a file, as `nibble init` makes them.
struct Beginning {
  TemporaryDirectory directory{"learning"};
  Config config;
  std::unique_ptr<TensorSource> source;

  Beginning(const Config& c, uint64_t seed) : config(c) {
    const auto file = directory.path() / "model.safetensors";
    ThreadPool pool(1);
    init_weights(c, file, Container::safetensors, {}, seed, pool);
    source = open_tensor_source(file);
  }
};

// Weights of a small model must be larger than 0.02, or its layers do nothing at first.
inline Config learner_config(int64_t width, int64_t layers) {
  Config c;
  c.C = width;
  c.L = layers;
  c.D = 32;
  c.Hq = c.Hkv = width / c.D;
  c.F = 2 * width;
  c.rope.theta = 1e4;
  c.tied = true;
  c.max_positions = 256;
  c.initializer_range = 0.1;
  return c;
}

inline Schedule cosine(double lr, int64_t steps) {
  return {ScheduleShape::cosine, lr, 0, 20, steps};
}

using BatchOfStep = std::function<PackedBatch(int64_t step)>;

// Trains to the end of the schedule; false when a step was skipped.
inline bool train(Trainer& trainer, const BatchOfStep& batch) {
  for (int64_t i = 0; i < trainer.state().settings().schedule.steps; ++i) {
    const PackedBatch b = batch(i);
    if (trainer.step(std::span(&b, 1)).skipped) return false;
  }
  return true;
}

// --- Reversal: symbols, kTurn, the symbols backwards, kEnd; scored from kTurn on. ---

enum class Split { training, held_out };

struct Reversal {
  static constexpr int32_t kTurn = 1, kEnd = 2, kFirstSymbol = 3;
  int64_t symbols = 16, shortest = 4, longest = 6;

  // One sequence in eight is never trained on: the sequence itself decides, whoever draws it.
  static Split split_of(const Tokens& sequence) {
    uint64_t hash = 0;
    for (const int32_t s : sequence) hash = philox(hash, 1, uint64_t(s))[0];
    return hash % 8 == 0 ? Split::held_out : Split::training;
  }

  std::vector<Tokens> draw(int64_t count, Split split, uint64_t seed, int64_t step) const {
    std::vector<Tokens> all;
    for (uint64_t k = 0; int64_t(all.size()) < count; ++k) {
      const auto random = [&](uint64_t i, int64_t n) {
        return int64_t(philox(seed, uint64_t(step) << 32 | k, i)[0] % uint64_t(n));
      };
      Tokens s(size_t(shortest + random(0, longest - shortest + 1)));
      for (size_t i = 0; i < s.size(); ++i) s[i] = int32_t(kFirstSymbol + random(i + 1, symbols));
      if (split_of(s) == split) all.push_back(std::move(s));
    }
    return all;
  }

  static Tokens prompt(const Tokens& sequence) {
    Tokens p = sequence;
    p.push_back(kTurn);
    return p;
  }

  static PackedBatch batch(const std::vector<Tokens>& sequences) {
    std::vector<Tokens> ids, targets;
    for (const Tokens& s : sequences) {
      Tokens row = prompt(s);
      row.insert(row.end(), s.rbegin(), s.rend());
      Tokens target(row.size(), -1);
      std::copy(s.rbegin(), s.rend(), target.begin() + std::ptrdiff_t(s.size()));
      target.back() = kEnd;
      ids.push_back(std::move(row));
      targets.push_back(std::move(target));
    }
    return packed_batch(ids, targets);
  }

  int64_t rows(int64_t count) const { return count * (2 * longest + 1); }
};

// --- A random source of order 2: logits of the next symbol are a random value for each of the two
// symbols before it, and a smaller one for the pair, which can only be learned by heart. ---

class Source {
 public:
  Source(int64_t symbols, uint64_t seed)
      : n_(symbols), probabilities_(size_t(symbols * symbols * symbols)) {
    constexpr double kSharpness = 1.5, kOfPair = 0.5;
    const double of_each = std::sqrt((1 - kOfPair * kOfPair) / 2);
    const auto normal = [&](uint64_t stream, int64_t i) {
      return normal_pair(philox(seed, stream, uint64_t(i)))[0];
    };
    for (int64_t a = 0; a < n_; ++a) {
      for (int64_t b = 0; b < n_; ++b) {
        double* p = &probabilities_[size_t((a * n_ + b) * n_)];
        double sum = 0;
        for (int64_t i = 0; i < n_; ++i) {
          const double logit = of_each * (normal(1, a * n_ + i) + normal(2, b * n_ + i)) +
                               kOfPair * normal(3, (a * n_ + b) * n_ + i);
          sum += p[i] = std::exp(kSharpness * logit);
        }
        for (int64_t i = 0; i < n_; ++i) p[i] /= sum;
      }
    }
  }

  struct Text {
    PackedBatch batch;
    double floor = 0;  // mean loss of who knows the source: no model does better on much text
  };
  // Windows of `rows` rows; the first, of which the source knows no more than the model, is not
  // scored.
  Text text(int64_t windows, int64_t rows, uint64_t seed, int64_t step) const {
    std::vector<Tokens> ids, targets;
    double sum = 0;
    for (int64_t w = 0; w < windows; ++w) {
      Tokens t;
      for (int64_t i = 0; i <= rows; ++i) {
        const auto r = philox(seed, uint64_t(step) << 32 | uint64_t(w), uint64_t(i));
        if (i < 2) {
          t.push_back(int32_t(r[0] % uint64_t(n_)));
          continue;
        }
        const double* p = &probabilities_[size_t((t[size_t(i - 2)] * n_ + t[size_t(i - 1)]) * n_)];
        double u = uniform_double(r[0], r[1]);
        int32_t next = 0;
        while (next < n_ - 1 && u >= p[next]) u -= p[next++];
        sum -= std::log(p[next]);
        t.push_back(next);
      }
      ids.emplace_back(t.begin(), t.end() - 1);
      targets.emplace_back(t.begin() + 1, t.end());
      targets.back().front() = -1;
    }
    return {packed_batch(ids, targets), sum / double(windows * (rows - 1))};
  }

 private:
  int64_t n_;
  std::vector<double> probabilities_;  // [n, n, n]: of the third symbol after the first two
};

}  // namespace nibble::test

// SPDX-License-Identifier: MIT
#include "model/evaluate.h"

#include <algorithm>
#include <cmath>

#include "backend/download.h"
#include "core/error.h"
#include "model/decoder.h"

namespace nibble {
namespace {

int32_t checked_token(int64_t id, int64_t vocabulary, const char* what) {
  if (id < 0 || id >= vocabulary) {
    throw_usage("{} holds token {}, but the vocabulary has {} entries", what, id, vocabulary);
  }
  return int32_t(id);
}

// Target of each row: the next label of the same sequence, -1 where there is none.
std::vector<int32_t> shifted_targets(std::span<const int64_t> labels, int64_t B, int64_t T,
                                     int64_t V) {
  std::vector<int32_t> targets(size_t(B * T), -1);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t + 1 < T; ++t) {
      const int64_t label = labels[size_t(b * T + t + 1)];
      if (label >= 0) targets[size_t(b * T + t)] = checked_token(label, V, "labels");
    }
  }
  return targets;
}

// Mean of logsumexp - target's logit over the rows with a target, in double. On the host: what
// makes gradients of it (the loss ops) is not wanted here.
void add_loss(Evaluation& e, std::span<const int32_t> targets, int64_t V) {
  double sum = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    const std::span<const float> row(e.logits.data() + i * size_t(V), size_t(V));
    const double top = double(*std::max_element(row.begin(), row.end()));
    double exps = 0;
    for (const float z : row) exps += std::exp(double(z) - top);
    sum += std::log(exps) + top - double(row[size_t(targets[i])]);
    ++e.scored;
  }
  e.loss = e.scored ? sum / double(e.scored) : 0;
}

}  // namespace

Evaluation evaluate(Backend& be, const Model& model, std::span<const int64_t> input_ids,
                    std::span<const int64_t> labels, int64_t B, int64_t T,
                    const EvaluateOptions& o) {
  const Config& c = model.config;
  const int64_t n = B * T;
  if (n < 1 || int64_t(input_ids.size()) != n || (!labels.empty() && int64_t(labels.size()) != n)) {
    throw_usage("input_ids and labels must both hold [{}, {}] tokens, found {} and {}", B, T,
                input_ids.size(), labels.size());
  }
  std::vector<int32_t> ids, positions, rows, sequences;
  for (int64_t i = 0; i < n; ++i) {
    ids.push_back(checked_token(input_ids[size_t(i)], c.V, "input_ids"));
    positions.push_back(int32_t(i % T));
    rows.push_back(int32_t(i));
  }
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t v : {b * T, T, b * T, T}) sequences.push_back(int32_t(v));
  }

  std::vector<int32_t> targets;
  if (!labels.empty()) targets = shifted_targets(labels, B, T, c.V);

  struct Memory {
    Batch batch;
    Acts acts;
    std::vector<KvView> kv;
  };
  const auto make = [&](Arena& a) {
    Memory m;
    m.batch.ids = a.take(DType::i32, {n});
    m.batch.positions = a.take(DType::i32, {n});
    m.batch.slots = a.take(DType::i32, {n});
    m.batch.sequences = a.take(DType::i32, {B, 4});
    m.batch.out_rows = a.take(DType::i32, {n});
    m.acts = make_acts(a, c, {n, n, o.compute, o.stat, o.keep});
    if (!m.acts.logits) m.acts.logits = a.take(o.stat, {n, c.V});
    for (int64_t l = 0; o.cache && l < c.L; ++l) {
      m.kv.push_back({a.take(*o.cache, {n, c.Hkv, c.D}), a.take(*o.cache, {n, c.Hkv, c.D})});
    }
    if (!o.cache) m.kv = kv_of_acts(m.acts, c);
    return m;
  };
  Arena measure("activations");
  make(measure);
  Arena arena("activations", be.allocate(measure.peak(), "activations"));
  Memory m = make(arena);
  be.upload(m.batch.ids, ids.data());
  be.upload(m.batch.positions, positions.data());
  be.upload(m.batch.slots, rows.data());
  be.upload(m.batch.sequences, sequences.data());
  be.upload(m.batch.out_rows, rows.data());
  forward(be, c, model.weights, m.batch, m.acts, m.kv, o.activations);

  Evaluation e;
  e.logits = download_floats(be, m.acts.logits);
  add_loss(e, targets, c.V);
  return e;
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
// The choice of a token as backend/sampling.h defines it, step by step over one sorted list.
#pragma once
#include <algorithm>
#include <set>
#include <vector>

#include "backend/backend.h"
#include "support/ref_value.h"

namespace nibble::test::ref {

// `logits` after the penalty.
inline int32_t sample_one(const std::vector<float>& logits, const SampleRow& row) {
  struct Token {
    float logit;
    int32_t id;
    uint64_t weight;
  };
  std::vector<Token> tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) tokens.push_back({logits[i], int32_t(i), 0});
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const Token& a, const Token& b) { return a.logit > b.logit; });
  if (tokens.empty() || !std::isfinite(tokens[0].logit)) return -1;
  if (row.temperature <= 0) return tokens[0].id;
  const SampleScale scale(tokens[0].logit, row.temperature);
  for (Token& t : tokens) t.weight = sample_weight(scale.exponent(t.logit));

  // Position and weight of the first token with the same logit: what is strictly larger.
  std::vector<size_t> larger(tokens.size());
  std::vector<uint64_t> larger_weight(tokens.size());
  uint64_t sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool same = i > 0 && tokens[i].logit == tokens[i - 1].logit;
    larger[i] = same ? larger[i - 1] : i;
    larger_weight[i] = same ? larger_weight[i - 1] : sum;
    sum += tokens[i].weight;
  }
  std::vector<bool> keep(tokens.size(), true);
  uint64_t total = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (row.top_k > 0) keep[i] = larger[i] < size_t(row.top_k);
    if (keep[i]) total += tokens[i].weight;
  }
  std::vector<uint64_t> by_id(logits.size());
  uint64_t mass = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (row.top_p < 1 && larger_weight[i] >= nucleus_weight(row.top_p, total)) keep[i] = false;
    if (tokens[i].weight < least_weight(row.min_p)) keep[i] = false;
    if (!keep[i]) continue;
    by_id[size_t(tokens[i].id)] = tokens[i].weight;
    mass += tokens[i].weight;
  }
  uint64_t point = draw_point(row.seed, row.draw, mass);
  for (size_t i = 0; i < by_id.size(); ++i) {
    if (point < by_id[i]) return int32_t(i);
    point -= by_id[i];
  }
  return -2;
}

template <class T>
void sample(Tensor out, Tensor logits, Tensor rows, Tensor context) {
  const auto* table = reinterpret_cast<const SampleRow*>(rows.data);
  for (int64_t n = 0; n < logits.dim(0); ++n) {
    std::vector<float> values;
    for (int64_t v = 0; v < logits.dim(1); ++v)
      values.push_back(float(real_part(logits.row<T>(n)[v])));
    if (context && table[n].repetition_penalty != 1) {
      const int32_t* ids = context.as<int32_t>() + table[n].context_begin;
      for (const int32_t id : std::set<int32_t>(ids, ids + table[n].context_length)) {
        if (id < 0 || id >= logits.dim(1)) continue;
        float& x = values[size_t(id)];
        const float p = float(table[n].repetition_penalty);
        x = x > 0 ? x / p : x * p;
      }
    }
    out.as<int32_t>()[n] = sample_one(values, table[n]);
  }
}

}  // namespace nibble::test::ref

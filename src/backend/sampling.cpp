// SPDX-License-Identifier: MIT
#include "backend/sampling.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

namespace nibble {
namespace {

struct Entry {
  uint32_t key;
  uint64_t weight;
};

void penalise(std::span<const float> logits, std::span<const int32_t> context, double penalty,
              SampleScratch& s) {
  s.logits.assign(logits.begin(), logits.end());
  s.seen.assign(logits.size(), false);
  for (const int32_t id : context) {
    if (id < 0 || size_t(id) >= logits.size() || s.seen[size_t(id)]) continue;
    s.seen[size_t(id)] = true;
    s.logits[size_t(id)] = penalised(logits[size_t(id)], float(penalty));
  }
}

struct Tokens {
  std::vector<float> logits;
  std::vector<int32_t> ids;
};

// Finds the tokens that top-k might keep; false where that is not worth it.
// The k-th largest of the maxima of k or more blocks is a lower bound of the k-th largest logit.
bool narrow(std::span<const float> logits, int64_t k, Tokens& some) {
  constexpr size_t kBlock = 256;
  if (size_t(k) * kBlock > logits.size()) return false;
  std::vector<float> maxima;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    float m = -std::numeric_limits<float>::infinity();
    for (const float l : logits.subspan(i, std::min(kBlock, logits.size() - i))) m = l > m ? l : m;
    maxima.push_back(m);
  }
  std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<>());
  const float bound = maxima[size_t(k - 1)];
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= bound) some.logits.push_back(logits[i]), some.ids.push_back(int32_t(i));
  }
  return true;
}

// The smallest key that top-k keeps.
uint32_t top_k_key(std::span<const float> logits, const SampleScale& scale, int64_t k) {
  std::array<int64_t, kSampleBins> count{};
  const auto bin_of = [&](float l) { return sample_bin(scale.exponent(l)); };
  for (const float l : logits) {
    if (sample_key(l) != 0) ++count[size_t(bin_of(l))];
  }
  int bin = 0;
  for (; bin < kSampleBins && count[size_t(bin)] < k; ++bin) k -= count[size_t(bin)];
  if (bin == kSampleBins) return 1;  // fewer than k
  std::vector<uint32_t> keys;
  for (const float l : logits) {
    if (sample_key(l) != 0 && bin_of(l) == bin) keys.push_back(sample_key(l));
  }
  std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end(), std::greater<>());
  return keys[size_t(k - 1)];
}

// The smallest key that top-p keeps. `weights` are 0 where top-k dropped the token.
uint32_t top_p_key(std::span<const float> logits, const SampleScale& scale,
                   std::span<const uint64_t> weights, uint64_t wanted) {
  std::array<uint64_t, kSampleBins> mass{};
  const auto bin_of = [&](size_t i) { return sample_bin(scale.exponent(logits[i])); };
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights[i] > 0) mass[size_t(bin_of(i))] += weights[i];
  }
  int bin = 0;
  for (; mass[size_t(bin)] < wanted; ++bin) wanted -= mass[size_t(bin)];
  std::vector<Entry> entries;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights[i] > 0 && bin_of(i) == bin) entries.push_back({sample_key(logits[i]), weights[i]});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.key > b.key; });
  uint64_t sum = 0;
  for (const Entry& e : entries) {
    sum += e.weight;
    if (sum >= wanted) return e.key;
  }
  return 1;  // not reached: the bin holds what is wanted
}

}  // namespace

int32_t choose_token(std::span<const float> logits, std::span<const int32_t> context,
                     const SampleRow& row, SampleScratch& s) {
  if (row.repetition_penalty != 1 && !context.empty()) {
    penalise(logits, context, row.repetition_penalty, s);
    logits = s.logits;
  }
  uint32_t best = 0;
  size_t at = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint32_t key = sample_key(logits[i]);
    if (key > best) best = key, at = i;
  }
  if (!sample_finite(best)) return -1;
  if (!(row.temperature > 0)) return int32_t(at);

  Tokens some;
  const bool narrowed = has_top_k(row, int64_t(logits.size())) && narrow(logits, row.top_k, some);
  if (narrowed) logits = some.logits;
  const auto id_of = [&](size_t i) { return narrowed ? some.ids[i] : int32_t(i); };
  const SampleScale scale(sample_logit(best), row.temperature);
  uint32_t least = 1;
  if (has_top_k(row, int64_t(logits.size()))) least = top_k_key(logits, scale, row.top_k);
  s.weights.assign(logits.size(), 0);
  uint64_t total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (sample_key(logits[i]) >= least)
      total += s.weights[i] = sample_weight(scale.exponent(logits[i]));
  }
  if (has_top_p(row)) {
    const uint64_t wanted = nucleus_weight(row.top_p, total);
    least = std::max(least, top_p_key(logits, scale, s.weights, wanted));
  }
  const uint64_t light = least_weight(row.min_p);
  uint64_t mass = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (s.weights[i] < light || sample_key(logits[i]) < least) s.weights[i] = 0;
    mass += s.weights[i];
  }
  uint64_t point = draw_point(row.seed, row.draw, mass);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (point < s.weights[i]) return id_of(i);
    point -= s.weights[i];
  }
  return int32_t(at);  // not reached: the point lies below the mass
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "core/error.h"
#include "core/rng.h"

namespace nibble {

Sampler::Sampler(const SampleOptions& o) : options_(o) {
  if (!(o.top_p > 0) || o.top_p > 1) throw_usage("top-p is {}, expected 0 < p <= 1", o.top_p);
  if (o.min_p < 0 || o.min_p > 1) throw_usage("min-p is {}, expected 0..1", o.min_p);
  if (o.top_k < 0) throw_usage("top-k is {}, expected 0 (all) or more", o.top_k);
  if (!(o.repetition_penalty > 0))
    throw_usage("repetition penalty is {}, expected > 0", o.repetition_penalty);
  if (std::isnan(o.temperature)) throw_usage("temperature is not a number");
}

void Sampler::collect(std::span<const float> logits, std::span<const int32_t> context) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates_.push_back({logits[i], int32_t(i)});
  }
  if (options_.repetition_penalty == 1) return;
  const std::unordered_set<int32_t> seen(context.begin(), context.end());
  const float penalty = float(options_.repetition_penalty);
  for (Candidate& c : candidates_) {
    if (seen.contains(c.id)) c.logit = c.logit > 0 ? c.logit / penalty : c.logit * penalty;
  }
}

int32_t Sampler::next(std::span<const float> logits, std::span<const int32_t> context) {
  const bool greedy = options_.temperature <= 0;
  if (greedy && options_.repetition_penalty == 1) {
    size_t best = 0;
    for (size_t i = 1; i < logits.size(); ++i) {
      if (logits[i] > logits[best] || std::isnan(logits[best])) best = i;
    }
    return int32_t(best);
  }
  collect(logits, context);
  if (candidates_.empty()) return 0;  // all NaN; the caller's finite check reports it
  // Most likely first; equal logits by id, so that a draw never depends on the sort.
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (greedy) return std::min_element(candidates_.begin(), candidates_.end(), before)->id;

  size_t keep = candidates_.size();
  if (options_.top_k > 0) keep = std::min(keep, size_t(options_.top_k));
  // A full sort of 151,936 logits costs milliseconds; without top-k the head of the distribution is
  // found in growing steps.
  size_t sorted = 0;
  const auto sort_to = [&](size_t n) {
    if (n <= sorted) return;
    std::partial_sort(candidates_.begin() + std::ptrdiff_t(sorted),
                      candidates_.begin() + std::ptrdiff_t(n), candidates_.end(), before);
    sorted = n;
  };
  sort_to(1);
  const double largest = double(candidates_[0].logit), t = options_.temperature;
  const auto weight = [&](const Candidate& c) {
    return std::isinf(largest) ? double(double(c.logit) == largest)
                               : std::exp((double(c.logit) - largest) / t);
  };
  if (options_.top_k > 0) sort_to(keep);
  double total = 0;
  for (size_t i = 0; i < keep; ++i) total += weight(candidates_[i]);

  weights_.clear();
  double mass = 0;
  for (size_t i = 0; i < keep; ++i) {
    if (i >= sorted) sort_to(std::min(keep, std::max<size_t>(64, sorted * 4)));
    const double w = weight(candidates_[i]);
    if (w < options_.min_p) break;  // weights are relative to the most likely token already
    weights_.push_back(w);
    mass += w;
    if (mass >= options_.top_p * total && options_.top_p < 1) break;
  }

  const auto r = philox(options_.seed, 0, draws_++);
  double left = uniform_double(r[0], r[1]) * mass;
  for (size_t i = 0; i < weights_.size(); ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[weights_.size() - 1].id;  // rounding left a sliver
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "serve/schedule/token_choice.h"

#include <algorithm>
#include <cmath>

namespace nibble {

TokenFacts token_facts(std::span<const float> logits, int32_t id, int top) {
  const auto larger = [&](int32_t a, int32_t b) {
    const float x = logits[size_t(a)], y = logits[size_t(b)];
    return x != y ? x > y : a < b;
  };
  float largest = -INFINITY;
  for (const float x : logits) largest = std::max(largest, x);
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x) - double(largest));
  const double norm = double(largest) + std::log(sum);
  const auto chance = [&](int32_t i) { return TokenChance{i, double(logits[size_t(i)]) - norm}; };

  TokenFacts facts{chance(id), {}};
  if (top > 0) {
    std::vector<int32_t> ids(logits.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(i);
    const size_t n = std::min(size_t(top), ids.size());
    std::partial_sort(ids.begin(), ids.begin() + std::ptrdiff_t(n), ids.end(), larger);
    for (size_t i = 0; i < n; ++i) facts.top.push_back(chance(ids[i]));
  }
  return facts;
}

bool TokenChoice::on_host() const {
  return request_.rule || !request_.bias.empty() || request_.frequency_penalty != 0 ||
         request_.presence_penalty != 0 || request_.top_logprobs;
}

int32_t TokenChoice::choose(std::span<float> logits, std::span<const int32_t> context,
                            uint64_t draw) {
  for (const auto& [id, count] : counts_) {
    const double off = request_.frequency_penalty * double(count) + request_.presence_penalty;
    if (off != 0) logits[size_t(id)] = float(double(logits[size_t(id)]) - off);
  }
  for (const auto& [id, bias] : request_.bias) logits[size_t(id)] += bias;
  if (request_.rule) request_.rule->mask(logits);
  return choose_token(logits, context, sample_row(request_.reply.sample, draw), scratch_);
}

void TokenChoice::take(int32_t id) {
  ++counts_[id];
  if (request_.rule) request_.rule->take(id);
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
// How the next token is chosen from logits, to the bit, for host and device.
//
// Order of steps: repetition penalty, temperature, top-k, top-p, min-p, draw. Weights are integers,
// so their sums are exact in any order, and every cut is a threshold: tokens with equal logits are
// kept or dropped together. Whoever follows the definition, by whatever algorithm, chooses the
// same token.
//   1. A token of the context has its logit divided by the penalty if positive, else multiplied.
//   2. NaN is never chosen. Where the largest logit is not finite there is no choice: -1.
//   3. Temperature <= 0: the largest logit, the lowest id of several.
//   4. weight = floor(2^44 exp((logit - largest) / temperature)).
//   5. top-k keeps a token when fewer than k logits are larger than its own.
//   6. top-p keeps it when the tokens with larger logits have less than p of the weight that top-k
//      kept: the token that crosses p stays.
//   7. min-p keeps it when its weight is at least p times that of the most likely token.
//   8. A random 64-bit number picks a point of the kept weights laid end to end in order of ids.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.h"
#include "quant/codec.h"

namespace nibble {

// One row of the table that Backend::sample reads, an i32 tensor [N, 16]: so the numbers may change
// while a recorded sequence of ops stays the same.
struct SampleRow {
  double temperature = 0;  // <= 0: greedy
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  uint64_t seed = 0, draw = 0;                    // the draw-th number of this seed
  int64_t top_k = 0;                              // 0: all
  int32_t context_begin = 0, context_length = 0;  // part of `context` the penalty looks at
};
static_assert(sizeof(SampleRow) == 64);

enum class Choice {
  greedy,  // every row has temperature <= 0 and no penalty
  any,     // each row says
};

constexpr uint64_t kSampleOne = uint64_t(1) << 44;       // the most likely token's weight
constexpr int64_t kSampleVocabulary = int64_t(1) << 20;  // sums then fit into 64 bits
constexpr uint32_t kSampleMinusInf = 0x007fffffu, kSampleInf = 0xff800000u;  // keys

// Larger logits have larger keys, both zeros the same; 0 for NaN.
NIBBLE_HOST_DEVICE constexpr uint32_t sample_key(float logit) {
  if (!(logit == logit)) return 0;
  const uint32_t u = logit == 0 ? 0u : __builtin_bit_cast(uint32_t, logit);
  return u >> 31 ? ~u : u | 0x80000000u;
}
NIBBLE_HOST_DEVICE constexpr float sample_logit(uint32_t key) {
  return __builtin_bit_cast(float, key >> 31 ? key & 0x7fffffffu : ~key);
}
NIBBLE_HOST_DEVICE constexpr bool sample_finite(uint32_t key) {
  return key > kSampleMinusInf && key < kSampleInf;
}
NIBBLE_HOST_DEVICE constexpr float penalised(float logit, float penalty) {
  return logit > 0 ? logit / penalty : logit * penalty;
}

// A logit's distance to the largest in units of the temperature, 0 or less.
struct SampleScale {
  double largest = 0, inverse = 1;
  SampleScale() = default;
  NIBBLE_HOST_DEVICE constexpr SampleScale(float largest_logit, double temperature)
      : largest(double(largest_logit)),
        inverse(temperature > 1e-300 ? 1.0 / temperature : 1e300) {}  // finite: 0 must stay 0
  NIBBLE_HOST_DEVICE constexpr double exponent(float logit) const {
    return (double(logit) - largest) * inverse;
  }
};

NIBBLE_HOST_DEVICE constexpr uint64_t sample_weight(double x) {
  if (!(x > -31.0)) return 0;  // exp(-31) 2^44 < 1; -infinity and NaN, too
  // Written out rather than left to a library, whose last bit differs between host and device.
  const int32_t n = int32_t(x * 1.4426950408889634 - 0.5);
  const double r =
      (x - double(n) * 6.93147180369123816490e-01) - double(n) * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return uint64_t(p * __builtin_bit_cast(double, uint64_t(1023 + 44 + n) << 52));
}

// Bins of equal width, larger logits first; the last takes all that has no weight.
constexpr int kSampleBins = 2048;
NIBBLE_HOST_DEVICE constexpr int sample_bin(double x) {
  const double d = x * -64.0;
  return d < double(kSampleBins - 1) ? int(d) : kSampleBins - 1;
}

// What the larger logits must have together for a token to be left out by top-p.
NIBBLE_HOST_DEVICE constexpr uint64_t nucleus_weight(double top_p, uint64_t total) {
  const double product = top_p * double(total);
  const uint64_t t = product < double(total) ? uint64_t(product) : total;
  return t > 0 ? t : 1;
}
NIBBLE_HOST_DEVICE constexpr uint64_t least_weight(double min_p) {
  return uint64_t(min_p * double(kSampleOne));
}

// The point of the kept weights, 0 .. mass - 1.
NIBBLE_HOST_DEVICE constexpr uint64_t draw_point(uint64_t seed, uint64_t draw, uint64_t mass) {
  const auto r = philox(seed, 0, draw);
  const uint64_t u0 = r[1], u1 = r[0], m0 = mass & 0xffffffffu, m1 = mass >> 32;
  // The upper half of the 128-bit product.
  const uint64_t low = u0 * m0 >> 32, a = u1 * m0, b = u0 * m1;
  const uint64_t middle = low + (a & 0xffffffffu) + (b & 0xffffffffu);
  return u1 * m1 + (a >> 32) + (b >> 32) + (middle >> 32);
}

NIBBLE_HOST_DEVICE constexpr bool has_top_k(const SampleRow& r, int64_t vocabulary) {
  return r.top_k > 0 && r.top_k < vocabulary;
}
NIBBLE_HOST_DEVICE constexpr bool has_top_p(const SampleRow& r) { return r.top_p < 1; }

// Memory that choose_token uses again.
struct SampleScratch {
  std::vector<float> logits;
  std::vector<bool> seen;
  std::vector<uint64_t> weights;
};
// The rule on the host. `context` are the tokens of the penalty; ids outside the vocabulary are
// passed over.
int32_t choose_token(std::span<const float> logits, std::span<const int32_t> context,
                     const SampleRow& row, SampleScratch& scratch);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// The scale rules once more, slowly and straight from their text: no shared code with src/quant
// beyond the codec, which has its own exhaustive test.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/half.h"
#include "core/rng.h"
#include "quant/codec.h"
#include "quant/nvfp4.h"

namespace nibble::test {

struct Quantised {
  std::array<uint8_t, 16> codes;
  uint8_t scale;
  bool operator==(const Quantised&) const = default;
};

inline std::array<uint8_t, 16> codes_under(const float* x, float s) {
  std::array<uint8_t, 16> c{};
  for (int i = 0; i < 16; ++i) c[size_t(i)] = e2m1_encode(x[i] / s);
  return c;
}

inline float reference_error(const float* x, const std::array<uint8_t, 16>& c, float s) {
  float half[2] = {0, 0};
  for (int i = 0; i < 16; ++i) {
    const float e = std::fma(e2m1_value(c[size_t(i)]), s, -x[i]);
    half[i / 8] = std::fma(e, e, half[i / 8]);
  }
  return half[0] + half[1];
}

inline int largest_magnitude(const std::array<uint8_t, 16>& c) {
  int m = 0;
  for (const uint8_t v : c) m = std::max(m, v & 7);
  return m;
}

inline Quantised reference_block(const float* x, ScaleRule rule, float g) {
  float input[16];
  for (int i = 0; i < 16; ++i) {
    input[i] = rule == ScaleRule::torchao ? to_float(to_bf16(x[i])) : x[i];
  }
  float amax = 0;
  for (const float v : input) amax = std::max(amax, std::abs(v));
  if (rule == ScaleRule::torchao) {
    const uint8_t scale = e4m3_encode(std::max(amax / 6.0f, 0x1p-6f));
    return {codes_under(input, e4m3_value(scale)), scale};
  }
  if (amax == 0) return {codes_under(input, 1), 0};
  const auto byte = [&](float d) { return std::max<uint8_t>(1, e4m3_encode(amax / d / g)); };
  const auto value = [&](uint8_t b) { return e4m3_value(b) * g; };
  const uint8_t b6 = byte(6), b4 = byte(4);
  Quantised q{codes_under(x, value(b6)), b6};
  if (rule == ScaleRule::absmax) return q;
  if (rule == ScaleRule::four_over_six) {
    const auto c4 = codes_under(x, value(b4));
    const bool better = reference_error(x, c4, value(b4)) < reference_error(x, q.codes, value(b6));
    if (largest_magnitude(c4) == 6 && better) q = {c4, b4};
  } else {
    float best = INFINITY;
    for (int b = std::max(1, b6 - 1); b <= std::min(126, b4 + 1); ++b) {
      const auto c = codes_under(x, value(uint8_t(b)));
      const float e = reference_error(x, c, value(uint8_t(b)));
      if (e < best) {
        best = e;
        q = {c, uint8_t(b)};
      }
    }
  }
  if (largest_magnitude(q.codes) == 0) q.scale = 0;
  return q;
}

inline std::vector<float> gaussian(int64_t n, double sd, uint64_t seed) {
  std::vector<float> x;
  for (int64_t i = 0; i < (n + 1) / 2; ++i) {
    for (const double v : normal_pair(philox(seed, 0, uint64_t(i)))) x.push_back(float(v * sd));
  }
  x.resize(size_t(n));
  return x;
}

struct Packed {
  std::vector<uint8_t> codes, scales;
  bool operator==(const Packed&) const = default;
};

inline Packed pack(const std::vector<float>& x, ScaleRule rule, float g = 1) {
  Packed p{std::vector<uint8_t>(x.size() / 2), std::vector<uint8_t>(x.size() / 16)};
  quantize_rows(x.data(), 1, int64_t(x.size()), rule, g, p.codes.data(), p.scales.data());
  return p;
}

inline std::vector<float> unpack(const Packed& p, float g = 1) {
  std::vector<float> x(p.codes.size() * 2);
  dequantize_rows(p.codes.data(), p.scales.data(), 1, int64_t(x.size()), g, x.data());
  return x;
}

constexpr ScaleRule kAllRules[] = {ScaleRule::four_over_six, ScaleRule::absmax, ScaleRule::search,
                                   ScaleRule::torchao};

}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// The 8-bit codes of Adam's moments and the arithmetic of one element, for host and device: the
// only place they are written down (docs/numerics.md has the text). Device code passes its own
// copy of the tables.
#pragma once
#include <cmath>
#include <cstdint>

#include "quant/adamw.h"
#include "quant/codec.h"

namespace nibble {

// --- int8, first moment: signed dynamic map ---
// Bit 7 is the sign. Magnitude code 0 is 0; 2^i + k (i = 0..6, k < 2^i) is the middle of the k-th
// of 2^i equal parts of [0.1, 1] * 10^(i-6), except that 127 is exactly 1: seven decades, more
// finely the larger.
struct DynamicMap {
  // A cell is 1/64 of an octave from 2^-22 to 1. It holds the midpoint that decides inside it,
  // as float bits whose low 7 are the code below the midpoint.
  static constexpr int kOctaves = 22, kCells = kOctaves * 64 + 1;
  static constexpr uint32_t kFirst = uint32_t(127 - kOctaves) << 23, kLast = 127u << 23;

  float value[256]{};
  uint32_t cell[kCells]{};
  uint32_t midpoint[127]{};

  constexpr DynamicMap() {
    constexpr double kDecade[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    for (int i = 0; i < 7; ++i) {
      const int n = 1 << i;
      for (int k = 0; k < n; ++k) {
        value[n + k] = float(kDecade[i] * (0.1 + 0.9 * (k + 0.5) / n));
      }
    }
    value[127] = 1;
    for (int i = 0; i < 128; ++i) value[128 + i] = -value[i];
    for (uint32_t i = 0; i < 127; ++i) {
      const float middle = float((double(value[i]) + double(value[i + 1])) / 2);
      midpoint[i] = (__builtin_bit_cast(uint32_t, middle) & ~127u) | i;
    }
    uint32_t below = 0;
    for (uint32_t c = 0; c < kCells; ++c) {
      const uint32_t begin = kFirst + (c << 17);
      while (below < 127 && begin > midpoint[below]) ++below;
      cell[c] = below < 127 ? midpoint[below] : 0x7f000000u | 127u;
      // A cell with two midpoints would need a finer table: not a constant expression.
      if (below + 1 < 127 && midpoint[below + 1] < begin + (1u << 17)) throw "two midpoints";
    }
  }
};
inline constexpr DynamicMap kDynamicMap;

// The nearest code of r = m / scale. Beyond +-1, and for NaN, the largest.
NIBBLE_HOST_DEVICE inline uint8_t dynamic_code(const DynamicMap& map, float r) {
  const uint32_t u = __builtin_bit_cast(uint32_t, r);
  uint32_t a = u & 0x7fffffffu;
  a = a < DynamicMap::kFirst ? DynamicMap::kFirst : a > DynamicMap::kLast ? DynamicMap::kLast : a;
  const uint32_t middle = map.cell[(a - DynamicMap::kFirst) >> 17];
  return uint8_t(((middle & 127u) + uint32_t(a > middle)) | (u >> 24 & 0x80u));
}

// --- int8, second moment: logarithmic, without zero ---
// value = scale * 2^(-code/8). Rounded stochastically, so that the value is right on average: Adam
// moves v by 0.1 % a step, a code by 9 %, and nearest rounding would never move.
struct LogMap {
  float root[9] = {1.0f,
                   1.0905077326652577f,
                   1.189207115002721f,
                   1.2968395546510096f,
                   1.4142135623730951f,
                   1.5422108254079407f,
                   1.681792830507429f,
                   1.8340080864093424f,
                   2.0f};  // 2^(j/8)
  float per_step[8]{};     // 65536 / (root[j+1] - root[j])

  constexpr LogMap() {
    for (int j = 0; j < 8; ++j) {
      per_step[j] = float(65536.0 / (double(root[j + 1]) - double(root[j])));
    }
  }
};
inline constexpr LogMap kLogMap;

NIBBLE_HOST_DEVICE inline float log_value(const LogMap& map, uint8_t code) {
  const uint32_t root = __builtin_bit_cast(uint32_t, map.root[-uint32_t(code) & 7u]);
  return __builtin_bit_cast(float, root - ((uint32_t(code) + 7u) >> 3 << 23));
}

// r = v / scale, at most 1; random16 < 65536. A NaN becomes 0, which its NaN scale makes a NaN.
NIBBLE_HOST_DEVICE inline uint8_t log_code(const LogMap& map, float r, uint32_t random16) {
  const uint32_t a = __builtin_bit_cast(uint32_t, r) & 0x7fffffffu;
  const float u = __builtin_bit_cast(float, (a & 0x7fffffu) | 0x3f800000u);  // [1, 2)
  // Every eighth of [1, 2) but the last holds exactly one root, so three bits find the place.
  const uint32_t eighth = a >> 20 & 7u;
  const uint32_t j = eighth + uint32_t(u >= map.root[eighth + 1]);
  const bool up = float(random16) + 0.5f < (u - map.root[j]) * map.per_step[j];
  const int32_t code = 8 * 127 - int32_t(8 * (a >> 23) + j) - int32_t(up);
  return uint8_t(code < 0 ? 0 : code > 255 ? 255 : code);
}

// --- int8-linear ---
NIBBLE_HOST_DEVICE inline uint8_t linear_code(float x, float scale) {
  if (!(scale > 0) || scale > 3.40282347e38f) return 0;
  const float q = std::nearbyint(x / scale);
  return uint8_t(int8_t(q > 127 ? 127 : q < -127 ? -127 : q));
}

// --- nvfp4, second moment: the magnitude code of y = sqrt(v) / s, stochastic, never 0 for y > 0
// ---
NIBBLE_HOST_DEVICE inline uint8_t e2m1_stochastic(float y, uint32_t random16) {
  if (!(y < kE2m1Max)) return 7;
  const uint32_t low = uint32_t(y >= 0.5f) + uint32_t(y >= 1) + uint32_t(y >= 1.5f) +
                       uint32_t(y >= 2) + uint32_t(y >= 3) + uint32_t(y >= 4);
  const float below = e2m1_value(uint8_t(low)), above = e2m1_value(uint8_t(low + 1));
  const bool up = float(random16) + 0.5f < (y - below) / (above - below) * 65536.0f;
  const uint32_t code = low + uint32_t(up);
  return uint8_t(code == 0 && y > 0 ? 1 : code);
}

// --- One element ---
// R is float; double in the reference.
template <class R>
struct AdamwTerms {
  R lr, beta1, beta2, rest1, rest2, inverse_bias1, inverse_bias2, eps, decay, grad_scale;

  explicit AdamwTerms(const AdamwStep& s)
      : lr(R(s.lr)),
        beta1(R(s.beta1)),
        beta2(R(s.beta2)),
        rest1(R(1) - R(s.beta1)),
        rest2(R(1) - R(s.beta2)),
        inverse_bias1(R(1) / R(s.bias1)),
        inverse_bias2(R(1) / R(s.bias2)),
        eps(R(s.eps)),
        decay(R(s.weight_decay)),
        grad_scale(R(s.grad_scale)) {}
};

// Every operation rounds once, in this order; nothing is fused.
template <class R>
NIBBLE_HOST_DEVICE inline void adamw_element(const AdamwTerms<R>& t, R gradient, R& m, R& v, R& w) {
  const R g = gradient * t.grad_scale;
  m = t.beta1 * m + t.rest1 * g;
  v = t.beta2 * v + t.rest2 * (g * g);
  const R update = m * t.inverse_bias1 / (std::sqrt(v * t.inverse_bias2) + t.eps) + t.decay * w;
  // A step of nothing leaves the bits alone: -0 - (-0) would be +0.
  const R step = t.lr * update;
  if (step != R(0)) w = w - step;
}

}  // namespace nibble

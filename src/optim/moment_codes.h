// SPDX-License-Identifier: MIT
// The 8-bit codes of Adam's moments, for host and device: the only place they are written down
// (docs/numerics.md has the text). Device code passes its own copy of the tables.
#pragma once
#include <cmath>
#include <cstdint>

#include "optim/adamw.h"
#include "quant/codec.h"

namespace nibble {

// --- int8, first moment: signed dynamic map ---
// Bit 7 is the sign. Magnitude code 0 is 0; codes 2^i .. 2^(i+1) - 1 (i = 0..6) lie evenly in the
// decade [0.1, 1] * 10^(i-6): the middles of 2^i equal parts, in the last decade stretched so that
// 127 is exactly 1. Seven decades, the more finely the larger.
struct DynamicMap {
  // By row q = i + 1; row 0 is the code 0. value = code * step + base.
  float step[8]{}, base[8]{};
  // The other way: code = RNE(|r| * per_step + origin), at most `last`, where |r| >= begin.
  float per_step[8]{}, origin[8]{}, last[8]{};
  float begin[8]{};  // midpoint of the last value of row q and the first of row q + 1

  constexpr DynamicMap() {
    constexpr double kDecade[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    for (int q = 1; q < 8; ++q) {
      const int n = 1 << (q - 1);
      const double first = kDecade[q - 1] * (0.1 + 0.45 / n);
      const double width = q < 7 ? kDecade[q - 1] * 0.9 / n : (1 - first) / (n - 1);
      step[q] = float(width);
      base[q] = q < 7 ? float(first - width * n) : 1 - 127 * step[q];
      per_step[q] = float(1 / width);
      origin[q] = float(n - first / width);
      last[q] = float(2 * n - 1);
    }
    for (int q = 0; q < 7; ++q) {
      const double below = double(last[q] * step[q] + base[q]);
      const double above = double((last[q] + 1) * step[q + 1] + base[q + 1]);
      begin[q] = float((below + above) / 2);
    }
    begin[7] = 2;  // never reached
  }
};
inline constexpr DynamicMap kDynamicMap;

NIBBLE_HOST_DEVICE constexpr float dynamic_value(const DynamicMap& map, uint8_t code) {
  const float c = float(code & 127);
  const uint32_t exponent = __builtin_bit_cast(uint32_t, c) >> 23;
  const uint32_t q = exponent < 126 ? 0 : exponent - 126;
  const float magnitude = c * map.step[q] + map.base[q];
  return code & 128 ? -magnitude : magnitude;
}

// The nearest code of r = m / scale. Beyond +-1, and for NaN, the largest.
NIBBLE_HOST_DEVICE inline uint8_t dynamic_code(const DynamicMap& map, float r) {
  constexpr uint32_t kFirst = 105u << 23, kOne = 127u << 23;  // 2^-22, below all but zero
  const uint32_t u = __builtin_bit_cast(uint32_t, r);
  uint32_t a = u & 0x7fffffffu;
  a = a < kFirst ? kFirst : a > kOne ? kOne : a;
  const float magnitude = __builtin_bit_cast(float, a);
  // A float's bits are its logarithm, nearly: 64 x an octave make the row, or the one below.
  const uint32_t x = (a - kFirst) >> 17;
  const uint32_t estimate = (x + (x >> 2) + 120u) >> 8;
  const uint32_t q = estimate + uint32_t(magnitude >= map.begin[estimate]);
  const float code = magnitude * map.per_step[q] + map.origin[q];
  const float kept = code < map.last[q] ? code : map.last[q];
  return uint8_t(uint32_t(std::nearbyint(kept)) | (u >> 24 & 0x80u));
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

NIBBLE_HOST_DEVICE constexpr float log_value(const LogMap& map, uint8_t code) {
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

}  // namespace nibble

// SPDX-License-Identifier: MIT
// The bit rules of E2M1 (FP4) and E4M3FN (FP8), for host and device: the only place they are
// written down. Rounding is to nearest even and saturates; the sign bit is always kept.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define NIBBLE_HOST_DEVICE __host__ __device__
#else
#define NIBBLE_HOST_DEVICE
#endif

namespace nibble {

constexpr float kE2m1Max = 6.0f;
constexpr float kE4m3Max = 448.0f;
constexpr uint8_t kE4m3MaxCode = 0x7e;
constexpr uint8_t kE4m3NanCode = 0x7f;

// Bit 3 is the sign, bits 0-2 one of 0, 0.5, 1, 1.5, 2, 3, 4, 6. Only the low four bits count.
NIBBLE_HOST_DEVICE constexpr float e2m1_value(uint8_t code) {
  const uint32_t magnitude = code & 7u;
  // Codes 2-7 are the float's own top bits (exponent and one mantissa bit); 1 is subnormal.
  const uint32_t bits = magnitude >= 2 ? (magnitude + 252u) << 22 : magnitude * 0x3f000000u;
  return __builtin_bit_cast(float, bits | (code & 8u) << 28);
}

// Magnitude code 0-7 of |x|. NaN becomes 7, as on hardware that converts with saturation.
NIBBLE_HOST_DEVICE constexpr uint32_t e2m1_magnitude(float a) {
  // Each threshold is the midpoint of two neighbours; a tie goes to the even mantissa, so the
  // comparisons alternate.
  return uint32_t(!(a <= 0.25f)) + uint32_t(!(a < 0.75f)) + uint32_t(!(a <= 1.25f)) +
         uint32_t(!(a < 1.75f)) + uint32_t(!(a <= 2.5f)) + uint32_t(!(a < 3.5f)) +
         uint32_t(!(a <= 5.0f));
}

NIBBLE_HOST_DEVICE constexpr uint8_t e2m1_encode(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const float a = __builtin_bit_cast(float, u & 0x7fffffffu);
  return uint8_t(e2m1_magnitude(a) | (u >> 28 & 8u));
}

// Bias 7, subnormal step 2^-9, no infinities; 0x7f and 0xff are NaN.
NIBBLE_HOST_DEVICE constexpr float e4m3_value(uint8_t code) {
  const uint32_t sign = uint32_t(code & 0x80u) << 24;
  const uint32_t a = code & 0x7fu;
  if (a == 0x7fu) return __builtin_bit_cast(float, sign | 0x7fc00000u);
  if (a >= 8u) return __builtin_bit_cast(float, sign | ((a << 20) + (120u << 23)));
  const float sub = float(a) * 0x1p-9f;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, sub));
}

NIBBLE_HOST_DEVICE constexpr uint8_t e4m3_encode(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const uint32_t sign = u >> 24 & 0x80u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return kE4m3NanCode;
  if (a >= 0x43e00000u) return uint8_t(sign | kE4m3MaxCode);  // 448 and above
  if (a < 0x3c800000u) {                                      // below the smallest normal, 2^-6
    // Adding 2^14 makes the float grid spacing 2^-9, the subnormal step: the FPU rounds.
    const float r = __builtin_bit_cast(float, a) + 0x1p14f;
    return uint8_t(sign | (__builtin_bit_cast(uint32_t, r) - 0x46800000u));
  }
  const uint32_t r = a + 0x7ffffu + (a >> 20 & 1u);
  return uint8_t(sign | ((r >> 20) - (120u << 3)));
}

}  // namespace nibble

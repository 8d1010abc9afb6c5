// SPDX-License-Identifier: MIT
// Exact scalar conversions between float and the 16-bit floats. Rounding is to nearest even.
#pragma once
#include <bit>
#include <cstdint>

#include "core/dtype.h"

namespace nibble {

constexpr float to_float(bf16_t h) { return std::bit_cast<float>(uint32_t(h.bits) << 16); }

constexpr bf16_t to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {uint16_t((u >> 16) | 0x40)};  // keep NaN a NaN
  return {uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

constexpr float to_float(f16_t h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000u) << 16;
  const uint32_t exp = (h.bits >> 10) & 31u;
  const uint32_t man = h.bits & 1023u;
  if (exp == 31) return std::bit_cast<float>(sign | 0x7f800000u | (man << 13));
  if (exp != 0) return std::bit_cast<float>(sign | ((exp + 112) << 23) | (man << 13));
  const float sub = float(man) * 0x1p-24f;  // subnormals are multiples of 2^-24: exact in float
  return sign ? -sub : sub;
}

constexpr f16_t to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return {uint16_t(sign | 0x7e00u | ((a >> 13) & 0x3ffu))};
  if (a >= 0x477ff000u) return {uint16_t(sign | 0x7c00u)};  // rounds past 65504
  if (a < 0x38800000u) {                                    // below the smallest normal, 2^-14
    // Adding 0.5 makes the float grid spacing 2^-24, the subnormal step: the FPU does the rounding.
    const float r = std::bit_cast<float>(a) + 0.5f;
    return {uint16_t(sign | (std::bit_cast<uint32_t>(r) - 0x3f000000u))};
  }
  const uint32_t r = a + 0xfffu + ((a >> 13) & 1u);
  return {uint16_t(sign | ((r - 0x38000000u) >> 13))};
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
// An NVFP4 block by rule four-over-six, two lanes a block: lane pairs (2 i, 2 i + 1) have elements
// 0-7 and 8-15. The rule is that of quant/nvfp4_block.h, whose error sums are those of two halves;
// what differs is how a code is found, and that only where the result is provably the same.
#pragma once
#include "backends/cuda/device/packed_layout.cuh"
#include "quant/nvfp4_block.h"

namespace nibble::cuda {

// Magnitude codes of a half block under one scale, and their values before the scale.
template <bool kShort>
struct HalfTrial {
  float value[8];
  uint32_t code[8];

  // kShort: magnitudes have 8 significant bits and the scale 4. Then a quotient is a tie between
  // two codes or at least 1/128 of itself away from one, so it may come from a reciprocal if its
  // last bits, where that errs, are rounded off.
  __device__ __forceinline__ HalfTrial(const float (&a)[8], float s) {
    const float inverse = 1.0f / s;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float y = kShort ? a[i] * inverse : a[i] / s;
      if (kShort) y = __uint_as_float((__float_as_uint(y) + 0x800u) & 0xfffff000u);
      // Steps of 1/2 below 2, of 1 below 4, of 2 above; to nearest, ties to the even code.
      const bool low = y < 2.0f, middle = y < 4.0f;
      const float step = low ? 0.5f : middle ? 1.0f : 2.0f;
      const float steps = fminf(rintf(y * (low      ? 2.0f
                                           : middle ? 1.0f
                                                    : 0.5f)),
                                low      ? 4.0f
                                : middle ? 4.0f
                                         : 3.0f);
      value[i] = steps * step;
      code[i] = uint32_t(steps) + (low ? 0u : middle ? 2u : 4u);
    }
  }
  __device__ __forceinline__ uint32_t largest() const {
    uint32_t m = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) m = max(m, code[i]);
    return max(m, __shfl_xor_sync(0xffffffffu, m, 1));
  }
  __device__ __forceinline__ float squared_error(const float (&a)[8], float s) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float e = fmaf(value[i], s, -a[i]);
      sum = fmaf(e, e, sum);
    }
    return sum + __shfl_xor_sync(0xffffffffu, sum, 1);
  }
};

struct QuantisedHalf {
  uint32_t word;  // in the packed layout's order
  uint8_t scale;
};

// All lanes of the warp take part.
template <bool kShort>
__device__ __forceinline__ QuantisedHalf four_over_six_half(const float (&x)[8], float g) {
  float a[8];
  uint32_t sign[8], top = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t u = __float_as_uint(x[i]);
    sign[i] = u >> 31;
    a[i] = __uint_as_float(u & 0x7fffffffu);
    top = max(top, u & 0x7fffffffu);
  }
  top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));
  const float amax = __uint_as_float(top);
  const uint8_t scale6 = nvfp4_block::scale_code(amax, 6, g);
  const uint8_t scale4 = nvfp4_block::scale_code(amax, 4, g);
  const float s6 = e4m3_value(scale6) * g, s4 = e4m3_value(scale4) * g;
  const HalfTrial<kShort> six(a, s6), four(a, s4);
  constexpr uint32_t kCodeOfFour = 6;
  const uint32_t largest6 = six.largest(), largest4 = four.largest();
  const float error6 = six.squared_error(a, s6), error4 = four.squared_error(a, s4);
  const bool use_four = largest4 == kCodeOfFour && error4 < error6;
  QuantisedHalf q{0, use_four ? scale4 : scale6};
  const bool zero = top == 0;  // only signs to keep
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t code = zero ? 0u : use_four ? four.code[i] : six.code[i];
    q.word |= placed(i, code, sign[i]);
  }
  if (zero || (use_four ? largest4 : largest6) == 0) q.scale = 0;
  return q;
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Quantises one NVFP4 block of 16 by the rule four-over-six (try scales amax / 6 and amax / 4, keep
// the smaller squared error), two lanes a block: lanes 2 i and 2 i + 1 have elements 0-7 and 8-15.
// The rule is that of quant/nvfp4_block.h, whose error sums are those of two halves; only how a
// code is found differs, and only where the result is provably the same. Used by AdamW's
// requantisation.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backends/cuda/device_functions/packed_layout.cuh"
#include "quant/nvfp4_block.h"

namespace nibble::cuda {

// One candidate scale: magnitude codes of this half, and their values before the scale.
template <bool kShortMantissa>
struct HalfTrial {
  float value[8];
  uint32_t code[8];

  // kShortMantissa: the inputs are bf16 (8 significant bits) and the scale has 4. Then a quotient
  // is a tie between two codes or at least 1/128 of itself away from one, so it may come from a
  // reciprocal if its last bits, where that errs, are rounded off.
  __device__ __forceinline__ HalfTrial(const float (&a)[8], float s) {
    const float inverse = 1.0f / s;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float y = kShortMantissa ? a[i] * inverse : a[i] / s;
      if (kShortMantissa) y = __uint_as_float((__float_as_uint(y) + 0x800u) & 0xfffff000u);
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
template <bool kShortMantissa>
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
  const HalfTrial<kShortMantissa> six(a, s6), four(a, s4);
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

// --- bf16 masters without a row scale ---
// Everything in pairs of bf16, with the same results:
// - A quotient may be rounded to bf16 first: see HalfTrial. It is the weight times a reciprocal of
//   two bf16 parts, both cut off, the smaller product rounded: every code of every weight and scale
//   is right.
// - Adding and taking away 96 times the power of two below y (at least 1) leaves one fraction bit,
//   which is E2M1: of the sum's eight bits six lie above.
// - value * scale has six bits and lies within a step of the weight: their difference is exact in
//   bf16, while amax is below 2048 (a saturated scale of the fours candidate loses against the
//   sixes, whose scale does not saturate there).
constexpr uint32_t kPairSigns = 0x80008000u;

__device__ __forceinline__ uint32_t bits_of(__nv_bfloat162 x) {
  return *reinterpret_cast<const uint32_t*>(&x);
}
__device__ __forceinline__ __nv_bfloat162 pair_of(uint32_t x) {
  return *reinterpret_cast<const __nv_bfloat162*>(&x);
}
__device__ __forceinline__ float low_float(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_float(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
// high_float of a finite pair as a product, on another pipe than logic; -0 becomes 0.
__device__ __forceinline__ float high_product(uint32_t pair) {
  uint32_t y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(pair), "r"(0x3f800000u), "r"(0u));
  return __uint_as_float(y);
}
__device__ __forceinline__ float approximate_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The upper 16 bits of a float (truncation to bf16), in both halves of a pair.
__device__ __forceinline__ __nv_bfloat162 cut_off_twice(float x) {
  return pair_of(__byte_perm(__float_as_uint(x), 0, 0x3232));
}

// The largest magnitude of a block; no NaN. By negative values, which are needed anyway.
__device__ __forceinline__ float pair_block_amax(const uint32_t (&w)[4]) {
  const __nv_bfloat162 a = __hmin2(__hmin2(pair_of(w[0] | kPairSigns), pair_of(w[1] | kPairSigns)),
                                   __hmin2(pair_of(w[2] | kPairSigns), pair_of(w[3] | kPairSigns)));
  const float least = fminf(low_float(bits_of(a)), high_float(bits_of(a)));
  return fabsf(fminf(least, __shfl_xor_sync(0xffffffffu, least, 1)));
}

// The scales of both candidates: six in the low byte, four in the high one; and their values.
__device__ __forceinline__ uint32_t pair_scales(float amax, float* s6, float* s4) {
  // The IEEE quotient: one correction.
  constexpr float kSixth = 1.0f / 6.0f;
  const float near = amax * kSixth;
  const float wanted6 = fmaxf(fmaf(fmaf(-near, 6.0f, amax), kSixth, near), 0x1p-9f);
  const float wanted4 = fmaxf(amax * 0.25f, 0x1p-9f);
#if __CUDA_ARCH__ >= 890
  uint16_t bytes;
  uint32_t halves;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bytes) : "f"(wanted4), "f"(wanted6));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(bytes));
  const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&halves));
  *s6 = values.x, *s4 = values.y;
  return bytes;
#else
  const uint8_t six = e4m3_encode(wanted6), four = e4m3_encode(wanted4);
  *s6 = e4m3_value(six), *s4 = e4m3_value(four);
  return six | uint32_t(four) << 8;
#endif
}

// kClamp: values beyond the largest code saturate. (The fours candidate needs no such thing: where
// a quotient is beyond, it is not used.)
template <bool kClamp>
struct PairTrial {
  uint32_t value[4];
  float error;  // of this half

  // inverse: -1 / s.
  __device__ __forceinline__ PairTrial(const uint32_t (&negative)[4], float s, float inverse)
      : error(0) {
    const __nv_bfloat162 scale = cut_off_twice(s), one = __float2bfloat162_rn(1.0f);
    const __nv_bfloat162 high = cut_off_twice(inverse);
    const __nv_bfloat162 low = cut_off_twice(inverse - high_float(__float_as_uint(inverse)));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 x = pair_of(negative[i]);
      const __nv_bfloat162 y = __hfma2(x, high, __hmul2(x, low));
      const __nv_bfloat162 power = __hmax2(pair_of(bits_of(y) & 0x7f807f80u), one);
      const __nv_bfloat162 sum = __hfma2(power, __float2bfloat162_rn(96.0f), y);
      __nv_bfloat162 v = __hfma2(power, __float2bfloat162_rn(-96.0f), sum);
      if (kClamp) v = __hmin2(v, __float2bfloat162_rn(kE2m1Max));
      value[i] = bits_of(v);
      const uint32_t e = bits_of(__hfma2(v, scale, x));
      error = fmaf(low_float(e), low_float(e), error);
      error = fmaf(high_product(e), high_product(e), error);
    }
  }
};

// w: eight weights, amax: that of the block, below 2048. All lanes of the warp take part.
__device__ __forceinline__ QuantisedHalf four_over_six_pairs(const uint32_t (&w)[4], float amax) {
  float s6, s4;
  const uint32_t scales = pair_scales(amax, &s6, &s4);
  const float inverse6 = approximate_inverse(-s6), inverse4 = approximate_inverse(-s4);
  constexpr uint32_t kSigns = kPairSigns;
  const uint32_t negative[4] = {w[0] | kSigns, w[1] | kSigns, w[2] | kSigns, w[3] | kSigns};
  const PairTrial<true> six(negative, s6, inverse6);
  const PairTrial<false> four(negative, s4, inverse4);
  const float error6 = six.error + __shfl_xor_sync(0xffffffffu, six.error, 1);
  const float error4 = four.error + __shfl_xor_sync(0xffffffffu, four.error, 1);
  // Codes grow with magnitudes, so the largest is that of amax: 4 from 3.5 to 5, 0 to 0.25, and
  // quotients between are further away than these limits.
  const float top4 = amax * -inverse4, top6 = amax * -inverse6;
  const bool use_four = error4 < error6 && top4 > 3.49f && top4 < 5.02f;
  uint32_t z[4];  // times 2^-126: the code at bits 6-8 of each half
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 v = pair_of(use_four ? four.value[i] : six.value[i]);
    z[i] = bits_of(__hmul2(v, __float2bfloat162_rn(0x1p-126f)));
  }
  QuantisedHalf q;
  // The places of packed_layout.cuh.
  q.word = (z[0] | (w[0] & kSigns)) | (z[1] | (w[1] & kSigns)) >> 3 | z[2] >> 6 |
           (w[2] >> 1 & kSigns >> 1) | z[3] << 3 | (w[3] >> 2 & kSigns >> 2);
  q.scale = uint8_t(use_four ? scales >> 8 : top6 < 0.251f ? 0u : scales & 0xffu);
  return q;
}

}  // namespace nibble::cuda

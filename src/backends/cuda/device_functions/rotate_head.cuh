// SPDX-License-Identifier: MIT
// What comes between the qkv projection and attention, for one head by one warp: bias or QK-norm,
// and RoPE. A lane has D / 32 columns, the lane 16 further holds the other halves of its rotation
// pairs. Also by half a warp (HalfWarpHead), with the same bits.
#pragma once
#include "backends/cuda/device_functions/raw.cuh"
#include "backends/cuda/device_functions/reduce.cuh"

namespace nibble::cuda {

// A lane's norm weights, cosines and sines; loaded apart, since they may be there before the head
// is.
template <int D>
struct HeadFactors {
  static constexpr int kOwn = D / 32;  // columns of a lane
  float weight[kOwn], cosine[kOwn], sine[kOwn];

  // For row 0 of the table; everything 16-byte aligned. w null: no norm.
  __device__ __forceinline__ HeadFactors(const AnyFloats& w, const AnyFloats& table) {
    const int at = kOwn * (int(threadIdx.x) % 32), angle = at % (D / 2);
#pragma unroll
    for (int k = 0; k < kOwn; ++k) weight[k] = 1.0f;
    if (w) w.load<kOwn, true>(at, weight);
    table.load<kOwn, true>(angle, cosine);
    table.load<kOwn, true>(D / 2 + angle, sine);
  }
  // For row `token`, aligned or not.
  __device__ __forceinline__ HeadFactors(const AnyFloats& w, const AnyFloats& table,
                                         int64_t token) {
    const int at = kOwn * (int(threadIdx.x) % 32), angle = at % (D / 2);
    w.load<kOwn, false>(at, weight);
    table.load<kOwn, false>(token * D + angle, cosine);
    table.load<kOwn, false>(token * D + D / 2 + angle, sine);
  }
};

// A lane's part of a head's bias. `from`: the first pair whose bias a key is held without
// (StillPairs); of queries and values none.
template <int D>
struct HeadBias {
  static constexpr int kOwn = D / 32;
  float value[kOwn], less[kOwn];

  __device__ __forceinline__ HeadBias(const AnyFloats& bias, int64_t head, int from, float factor) {
    const int at = kOwn * (int(threadIdx.x) % 32);
    bias.load<kOwn, true>(head * D + at, value);
#pragma unroll
    for (int k = 0; k < kOwn; ++k) less[k] = at % (D / 2) + k < from ? 0.0f : factor * value[k];
  }
  __device__ __forceinline__ void add(float (&v)[kOwn]) const {
#pragma unroll
    for (int k = 0; k < kOwn; ++k) v[k] += value[k];
  }
  __device__ __forceinline__ void take_still(float (&v)[kOwn]) const {
#pragma unroll
    for (int k = 0; k < kOwn; ++k) v[k] -= less[k];
  }
};

// Rounded as the norm alone would store it; returns the reciprocal RMS.
template <class T, int D>
__device__ __forceinline__ float normalise_head(float (&v)[D / 32], const HeadFactors<D>& f,
                                                float eps) {
  float squares = 0;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) squares = fmaf(v[k], v[k], squares);
  const float scale = 1.0f / sqrtf(warp_reduce<Sum>(squares) / float(D) + eps);
#pragma unroll
  for (int k = 0; k < D / 32; ++k) v[k] = to_f32(from_f32<T>(v[k] * scale * f.weight[k]));
  return scale;
}

template <int D>
__device__ __forceinline__ void rotate_head(float (&v)[D / 32], const HeadFactors<D>& f) {
  const bool first_half = threadIdx.x % 32 < 16;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const float other = __shfl_xor_sync(0xffffffffu, v[k], 16) * f.sine[k];
    v[k] = fmaf(v[k], f.cosine[k], first_half ? -other : other);
  }
}

// A head by half a warp: lane l of 16 has columns kOwn l .. kOwn l + kOwn - 1 and their rotation
// partners, D / 2 further, so that only the sum of squares crosses lanes.
template <int D>
struct HalfWarpHead {
  static constexpr int kOwn = D / 32, kHalf = D / 2;
  float v[2][kOwn];

  static __device__ __forceinline__ int column() { return kOwn * (int(threadIdx.x) % 16); }

  // All lanes of the warp take part. Rounded to T as the norm alone would store it; returns the
  // reciprocal RMS.
  template <class T>
  __device__ __forceinline__ float normalise(const float (&weight)[2][kOwn], float eps) {
    float squares[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (float x : v[half]) squares[half] = fmaf(x, x, squares[half]);
    }
    float sum = squares[0] + squares[1];
#pragma unroll
    for (int o = 8; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    const float scale = 1.0f / sqrtf(sum / float(D) + eps);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int k = 0; k < kOwn; ++k) v[half][k] = v[half][k] * scale * weight[half][k];
      round_as<T>(v[half]);
    }
    return scale;
  }
  __device__ __forceinline__ void rotate(const float (&cosine)[kOwn], const float (&sine)[kOwn]) {
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const float low = v[0][k], high = v[1][k];
      v[0][k] = fmaf(low, cosine[k], -(high * sine[k]));
      v[1][k] = fmaf(high, cosine[k], low * sine[k]);
    }
  }
};

}  // namespace nibble::cuda

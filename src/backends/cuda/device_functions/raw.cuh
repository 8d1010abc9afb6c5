// SPDX-License-Identifier: MIT
// W elements of T as they lie in memory, in whole 32-bit words. Kept as single elements, 16-bit
// floats are extracted as soon as their word arrives, which makes later loads wait; and a float
// that is rounded alone goes through the special-function unit, at an eighth of the rate of a pair.
#pragma once
#include "backends/cuda/device_functions/types.cuh"

namespace nibble::cuda {

template <class T, int W>
struct alignas(W * sizeof(T) > 16 ? 16 : W * sizeof(T)) Raw {
  using Word = std::conditional_t<W * sizeof(T) == 2, uint16_t, uint32_t>;
  static constexpr int kPerWord = sizeof(Word) / sizeof(T);
  Word w[W / kPerWord];

  static __device__ __forceinline__ Raw load(const T* p) {
    return *reinterpret_cast<const Raw*>(p);
  }
  __device__ __forceinline__ void store(T* p) const { *reinterpret_cast<Raw*>(p) = *this; }
  // ld.global.cs: for data that is not read again soon (evict first).
  static __device__ __forceinline__ Raw load_streaming(const T* p) {
    if constexpr (sizeof(Raw) % 16 == 0) {
      Raw raw;
#pragma unroll
      for (int k = 0; k < int(sizeof(Raw) / 16); ++k) {
        reinterpret_cast<uint4*>(raw.w)[k] = __ldcs(reinterpret_cast<const uint4*>(p) + k);
      }
      return raw;
    }
    return load(p);
  }
  // The same where the address may be any.
  template <bool kAligned>
  static __device__ __forceinline__ Raw load_at(const T* p) {
    if constexpr (kAligned) return load(p);
    float v[W];
    load_f32_at<W, false>(p, v);
    return from_f32(v);
  }
  template <bool kAligned>
  __device__ __forceinline__ void store_at(T* p) const {
    if constexpr (kAligned) return store(p);
    float v[W];
    to_f32(v);
    store_f32_at<W, false>(p, v);
  }

  // To nearest even.
  static __device__ __forceinline__ Raw from_f32(const float (&v)[W]) {
    Raw raw;
#pragma unroll
    for (int k = 0; k < W / kPerWord; ++k) {
      if constexpr (kPerWord == 2 && std::is_same_v<T, bf16>) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(v[2 * k], v[2 * k + 1]);
        raw.w[k] = *reinterpret_cast<const Word*>(&pair);
      } else if constexpr (kPerWord == 2) {
        static_assert(std::is_same_v<T, f16>);
        const __half2 pair = __floats2half2_rn(v[2 * k], v[2 * k + 1]);
        raw.w[k] = *reinterpret_cast<const Word*>(&pair);
      } else {
        const T one = nibble::cuda::from_f32<T>(v[k]);
        raw.w[k] = *reinterpret_cast<const Word*>(&one);
      }
    }
    return raw;
  }
  __device__ __forceinline__ void to_f32(float (&v)[W]) const {
#pragma unroll
    for (int k = 0; k < W / kPerWord; ++k) {
      if constexpr (kPerWord == 2 && std::is_same_v<T, bf16>) {
        v[2 * k] = __uint_as_float(w[k] << 16), v[2 * k + 1] = __uint_as_float(w[k] & 0xffff0000u);
      } else if constexpr (kPerWord == 2) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&w[k]));
        v[2 * k] = pair.x, v[2 * k + 1] = pair.y;
      } else {
        v[k] = nibble::cuda::to_f32(*reinterpret_cast<const T*>(&w[k]));
      }
    }
  }
};

// To the nearest of T and back.
template <class T, int W>
__device__ __forceinline__ void round_as(float (&v)[W]) {
  Raw<T, W>::from_f32(v).to_f32(v);
}

}  // namespace nibble::cuda

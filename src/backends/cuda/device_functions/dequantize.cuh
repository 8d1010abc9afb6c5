// SPDX-License-Identifier: MIT
// NVFP4 codes of the packed layout as tensor-core operands in bf16 or f16. A code times an E4M3
// scale has six significant bits and lies between 2^-10 and 2688, so it is exact in both types.
#pragma once
#include <cstdint>
#include <type_traits>

#include "backends/cuda/device_functions/packed_layout.cuh"
#include "backends/cuda/device_functions/types.cuh"

namespace nibble::cuda {

// decode8 in T: values come times kCodeScale<T>, because codes are moved into the exponent by
// shifts alone.
template <class T>
__device__ __forceinline__ void decode_as(uint32_t word, uint32_t (&pair)[4]) {
  decode8(word, pair);
  if constexpr (std::is_same_v<T, f16>) {
#pragma unroll
    for (int i = 0; i < 4; ++i) pair[i] = bf16_pair_to_f16(pair[i]);
  }
}
template <class T>
inline constexpr float kCodeScale = std::is_same_v<T, f16> ? 0x1p-14f : 0x1p-126f;

template <class T>
__device__ __forceinline__ uint32_t multiply_pair(uint32_t a, uint32_t b) {
  if constexpr (std::is_same_v<T, f16>) {
    const __half2 r = __hmul2(*reinterpret_cast<__half2*>(&a), *reinterpret_cast<__half2*>(&b));
    return *reinterpret_cast<const uint32_t*>(&r);
  } else {
    const __nv_bfloat162 r =
        __hmul2(*reinterpret_cast<__nv_bfloat162*>(&a), *reinterpret_cast<__nv_bfloat162*>(&b));
    return *reinterpret_cast<const uint32_t*>(&r);
  }
}
template <class T>
__device__ __forceinline__ uint32_t broadcast_pair(float v) {
  uint32_t r;
  if constexpr (std::is_same_v<T, f16>) {
    const __half2 h = __float2half2_rn(v);
    r = *reinterpret_cast<const uint32_t*>(&h);
  } else {
    const __nv_bfloat162 h = __float2bfloat162_rn(v);
    r = *reinterpret_cast<const uint32_t*>(&h);
  }
  return r;
}

// Two E4M3 bytes (low, then high) as floats; by cvt where the hardware has it.
__device__ __forceinline__ float2 e4m3x2_to_float2(uint32_t two) {
#if __CUDA_ARCH__ >= 890
  uint32_t h;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(uint16_t(two)));
  return __half22float2(*reinterpret_cast<__half2*>(&h));
#else
  return make_float2(e4m3_value(uint8_t(two)), e4m3_value(uint8_t(two >> 8)));
#endif
}

// One multiplication applies a block scale s: the operand is decoded * (s * kPreScale), which is
// its value times kCodeScale * kPreScale, exactly; the epilogue multiplies the fp32 sum with
// kPostScale. (One power of two that undoes kCodeScale would not leave room for the scale in either
// type.)
template <class T>
inline constexpr float kPreScale = std::is_same_v<T, f16> ? 0x1p4f : 0x1p62f;
template <class T>
inline constexpr float kPostScale = 1.0f / (kCodeScale<T> * kPreScale<T>);  // 2^64 or 2^10

// The eight values of a word, fully scaled, exactly.
template <class T>
__device__ __forceinline__ uint4 dequantize8(uint32_t word, float scale) {
  uint32_t p[4];
  decode_as<T>(word, p);
  const uint32_t s = broadcast_pair<T>(scale * kPreScale<T>),
                 down = broadcast_pair<T>(kPostScale<T>);
#pragma unroll
  for (int i = 0; i < 4; ++i) p[i] = multiply_pair<T>(multiply_pair<T>(p[i], s), down);
  return make_uint4(p[0], p[1], p[2], p[3]);
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// 16-bit floats on the device, conversions, and vector loads and stores of W elements.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "core/error.h"
#include "core/tensor.h"

namespace nibble::cuda {

using bf16 = __nv_bfloat16;
using f16 = __half;
using f8 = __nv_fp8_e4m3;

template <class T>
__device__ __forceinline__ float to_f32(T v) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __bfloat162float(v);
  } else if constexpr (std::is_same_v<T, f16>) {
    return __half2float(v);
  } else {
    return float(v);
  }
}
// To nearest even; e4m3 saturates.
template <class T>
__device__ __forceinline__ T from_f32(float v) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __float2bfloat16_rn(v);
  } else if constexpr (std::is_same_v<T, f16>) {
    return __float2half_rn(v);
  } else {
    return T(v);
  }
}

// 1 / (1 + exp(-x)) without overflow, so that tiny values far below zero keep their size.
__device__ __forceinline__ float sigmoid(float x) {
  const float e = expf(-fabsf(x)), top = x < 0 ? e : 1.0f, bottom = 1.0f + e;
  // The quotient without a division's care for denominators that are not between 1 and 2.
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(bottom));
  const float near = top * inverse;
  return fmaf(fmaf(-near, bottom, top), inverse, near);
}

// W elements, moved as one when W > 1 (the address is then a multiple of their size).
template <class T, int W>
struct alignas(W * sizeof(T) > 16 ? 16 : W * sizeof(T)) Pack {
  T v[W];
};
template <int W, class T>
__device__ __forceinline__ void load_f32(const T* p, float (&out)[W]) {
  const Pack<T, W> raw = *reinterpret_cast<const Pack<T, W>*>(p);
#pragma unroll
  for (int i = 0; i < W; ++i) out[i] = to_f32(raw.v[i]);
}
// The same where the address may be any: for orders of summation that alignment must not change.
template <int W, bool kAligned, class T>
__device__ __forceinline__ void load_f32_at(const T* p, float (&out)[W]) {
  if constexpr (kAligned) {
    load_f32<W>(p, out);
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i) out[i] = to_f32(p[i]);
  }
}
template <int W, class T>
__device__ __forceinline__ void store_f32(T* p, const float (&in)[W]) {
  Pack<T, W> raw;
#pragma unroll
  for (int i = 0; i < W; ++i) raw.v[i] = from_f32<T>(in[i]);
  *reinterpret_cast<Pack<T, W>*>(p) = raw;
}

template <int W, bool kAligned, class T>
__device__ __forceinline__ void store_f32_at(T* p, const float (&in)[W]) {
  if constexpr (kAligned) {
    store_f32<W>(p, in);
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i) p[i] = from_f32<T>(in[i]);
  }
}

// A vector whose element type is known at run time only (norm weights, statistics): f32, or rarely
// that of the activations. The branch is uniform over a kernel.
struct AnyFloats {
  void* data = nullptr;
  DType type = DType::f32;
  AnyFloats() = default;
  explicit AnyFloats(const Tensor& t) : data(t ? t.data : nullptr), type(t.dtype) {}
  __device__ __forceinline__ explicit operator bool() const { return data != nullptr; }
  __device__ __forceinline__ float operator[](int64_t i) const {
    if (type == DType::f32) return static_cast<const float*>(data)[i];
    if (type == DType::bf16) return to_f32(static_cast<const bf16*>(data)[i]);
    return to_f32(static_cast<const f16*>(data)[i]);
  }
  template <int W, bool kAligned>
  __device__ __forceinline__ void load(int64_t i, float (&out)[W]) const {
    if (kAligned && type == DType::f32) {
      load_f32<W>(static_cast<const float*>(data) + i, out);
    } else {
#pragma unroll
      for (int k = 0; k < W; ++k) out[k] = (*this)[i + k];
    }
  }
  __device__ __forceinline__ void set(int64_t i, float v) const {
    if (type == DType::f32) {
      static_cast<float*>(data)[i] = v;
    } else if (type == DType::bf16) {
      static_cast<bf16*>(data)[i] = from_f32<bf16>(v);
    } else {
      static_cast<f16*>(data)[i] = from_f32<f16>(v);
    }
  }
};

// Calls f with a value of the element type of t: f32, bf16 or f16.
template <class F>
void with_float(DType t, F&& f) {
  switch (t) {
    case DType::f32: f(float{}); return;
    case DType::bf16: f(bf16{}); return;
    case DType::f16: f(f16{}); return;
    default: throw_internal("the CUDA backend has no kernel for {}", dtype_name(t));
  }
}
// ... or f8_e4m3, a type of the cache.
template <class F>
void with_cache_type(DType t, F&& f) {
  if (t == DType::f8_e4m3) {
    f(f8{});
  } else {
    with_float(t, f);
  }
}

// True when rows of every tensor can be moved W elements at a time.
template <int W, class... Tensors>
bool in_packs(const Tensors&... tensors) {
  return (
      (!tensors || (tensors.cols() % W == 0 && (tensors.rank == 1 || tensors.row_stride % W == 0) &&
                    reinterpret_cast<uintptr_t>(tensors.data) % 16 == 0)) &&
      ...);
}
template <class... Tensors>
bool in_eights(const Tensors&... tensors) {
  return in_packs<8>(tensors...);
}

template <class T>
T* ptr(const Tensor& t) {
  return reinterpret_cast<T*>(t.data);
}

}  // namespace nibble::cuda

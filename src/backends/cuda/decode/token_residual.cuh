// SPDX-License-Identifier: MIT
// The residual stream of a token, kept by every block in its shared memory, and its norms. Thread t
// has elements 8 t .. 8 t + 7, and those kTokenThreads packs of eight further; nobody else touches
// them. (Registers are too few: the compiler would keep it in local memory, and wait for weights
// that are on their way before it reads it.)
#pragma once
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device/reduce.cuh"
#include "backends/cuda/device/token_units.cuh"

namespace nibble::cuda {

template <int kPacks>
struct Residual {
  bf16* kept;         // [width]
  std::byte* weight;  // [width] of the next norm, f32 or 16 bits
  int width;

  static __host__ __device__ constexpr size_t bytes(int width) { return size_t(width) * 6; }
  __device__ __forceinline__ Residual(std::byte* memory, int width)
      : kept(reinterpret_cast<bf16*>(memory)), weight(memory + 2 * width), width(width) {}

  static __device__ __forceinline__ int at(int pack) {
    return 8 * (int(threadIdx.x) + pack * kTokenThreads);
  }
  // Asks for the weight of the next norm.
  __device__ __forceinline__ void ask_weight(const AnyFloats& w) const {
    const int element = w.type == DType::f32 ? 4 : 2;
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) >= width) continue;
      for (int half = 0; half < element / 2; ++half) {
        const int offset = at(s) * element + 16 * half;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         uint32_t(__cvta_generic_to_shared(weight + offset))),
                     "l"(static_cast<const std::byte*>(w.data) + offset)
                     : "memory");
      }
    }
  }
  __device__ __forceinline__ void read(const bf16* x) const {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) >= width) continue;
      *reinterpret_cast<uint4*>(kept + at(s)) = __ldcg(reinterpret_cast<const uint4*>(x + at(s)));
    }
  }
  // Plus x, rounded as it would be stored.
  __device__ __forceinline__ void add(const bf16* x) const {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) >= width) continue;
      const uint4 other = __ldcg(reinterpret_cast<const uint4*>(x + at(s)));
      float v[8], y[8];
      load_f32<8>(kept + at(s), v);
      load_f32<8>(reinterpret_cast<const bf16*>(&other), y);
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] += y[k];
      store_f32<8>(kept + at(s), v);
    }
  }
  // Its norm as a token for the products, in shared memory. type: that of the weight.
  __device__ __forceinline__ void normalise(bf16* token, DType type, float eps) const {
    float v[kPacks][8] = {}, squares = 0;
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) >= width) continue;
      load_f32<8>(kept + at(s), v[s]);
#pragma unroll
      for (int k = 0; k < 8; ++k) squares = fmaf(v[s][k], v[s][k], squares);
    }
    const float scale = 1.0f / sqrtf(block_reduce<Sum>(squares) / float(width) + eps);
    asm volatile("cp.async.wait_all;" ::: "memory");  // a thread reads what it has asked for
    AnyFloats w;
    w.data = weight, w.type = type;
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) >= width) continue;
      float g[8], y[8];
      w.load<8, true>(at(s), g);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        y[k] = to_f32(from_f32<bf16>(v[s][k] * scale * g[k])) * kTokenScale<bf16>;
      }
      store_f32<8>(token + at(s), y);
    }
    __syncthreads();
  }
};

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// The residual stream of a token, kept by every block in registers, and its norms.
#pragma once
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device/reduce.cuh"
#include "backends/cuda/device/token_units.cuh"

namespace nibble::cuda {

// The residual: thread t has elements 8 t .. 8 t + 7, and as many kTokenThreads packs further.
template <int kPacks>
struct Residual {
  uint4 packed[kPacks];     // bf16
  float weight[kPacks][8];  // of the next norm

  static __device__ __forceinline__ int at(int pack) {
    return 8 * (int(threadIdx.x) + pack * kTokenThreads);
  }
  __device__ __forceinline__ void ask_weight(const AnyFloats& w, int width) {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) < width) w.load<8, true>(at(s), weight[s]);
    }
  }
  __device__ __forceinline__ void read(const bf16* x, int width) {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      packed[s] = make_uint4(0, 0, 0, 0);
      if (at(s) < width) packed[s] = __ldcg(reinterpret_cast<const uint4*>(x + at(s)));
    }
  }
  // Plus x, rounded as it would be stored.
  __device__ __forceinline__ void add(const bf16* x, int width) {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) >= width) continue;
      const uint4 other = __ldcg(reinterpret_cast<const uint4*>(x + at(s)));
      float v[8], y[8];
      load_f32<8>(reinterpret_cast<const bf16*>(&packed[s]), v);
      load_f32<8>(reinterpret_cast<const bf16*>(&other), y);
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] += y[k];
      store_f32<8>(reinterpret_cast<bf16*>(&packed[s]), v);
    }
  }
  // Its norm as a token for the products, in shared memory.
  __device__ __forceinline__ void normalise(bf16* token, int width, float eps) const {
    float v[kPacks][8], squares = 0;
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      load_f32<8>(reinterpret_cast<const bf16*>(&packed[s]), v[s]);
#pragma unroll
      for (int k = 0; k < 8; ++k) squares = fmaf(v[s][k], v[s][k], squares);  // 0 behind the end
    }
    const float scale = 1.0f / sqrtf(block_reduce<Sum>(squares) / float(width) + eps);
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) >= width) continue;
      float y[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float rounded = to_f32(from_f32<bf16>(v[s][k] * scale * weight[s][k]));
        y[k] = rounded * kTokenScale<bf16>;
      }
      store_f32<8>(token + at(s), y);
    }
    __syncthreads();
  }
};

}  // namespace nibble::cuda

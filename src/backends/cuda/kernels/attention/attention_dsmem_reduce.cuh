// SPDX-License-Identifier: MIT
// Reduction of dk and dv over the blocks of a cluster through distributed shared memory, in the
// order of the blocks (deterministic); each block writes its part of the columns.
#pragma once
#include "backends/cuda/device_functions/cluster.cuh"
#include "backends/cuda/kernels/attention/attention_warpgroups.cuh"

namespace nibble::cuda {

#if defined(NIBBLE_HAS_WGMMA)

// Two accumulators (which: 0 dk, 1 dv) of each consumer thread, 64 rows of kWidth columns a
// warpgroup. The block's first warpgroup is the producer.
template <int kConsumers, int kWidth>
struct DsmemReduction {
  static constexpr int kReaders = kConsumers * kWarpgroupThreads, kQuads = kWidth / 8;
  uint32_t base;  // float4 [2][kQuads][kReaders]

  __device__ __forceinline__ uint32_t at(int which, int quad) const {
    return base +
           uint32_t((which * kQuads + quad) * kReaders + int(threadIdx.x) - kWarpgroupThreads) * 16;
  }
  __device__ __forceinline__ void store(int which, const float (&sums)[kWidth / 2]) const {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float* v = sums + 4 * q;
      store_chunk(at(which, q), __float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                  __float_as_uint(v[3]));
    }
  }
  // Reduces quads (groups of 8 columns) [first, first + kCount) of the lane's two rows; `to` is the
  // first of them, the other is 8 further.
  template <int kClusterBlocks, int kCount>
  __device__ __forceinline__ void reduce_and_write(int which, int first, float scale, bf16* to,
                                                   int64_t stride, int rows) const {
    const int c = int(threadIdx.x) % 4;
    float4 part[kCount][kClusterBlocks];
#pragma unroll
    for (int q = 0; q < kCount; ++q) {
#pragma unroll
      for (int b = 0; b < kClusterBlocks; ++b) {
        asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                     : "=f"(part[q][b].x), "=f"(part[q][b].y), "=f"(part[q][b].z),
                       "=f"(part[q][b].w)
                     : "r"(dsmem_address(at(which, first + q), uint32_t(b)))
                     : "memory");
      }
    }
#pragma unroll
    for (int q = 0; q < kCount; ++q) {
      float4 v = part[q][0];
#pragma unroll
      for (int b = 1; b < kClusterBlocks; ++b) {
        const float4 p = part[q][b];
        v.x += p.x, v.y += p.y, v.z += p.z, v.w += p.w;
      }
      bf16* const at_column = to + (first + q) * 8 + 2 * c;
      if (rows > 0) {
        *reinterpret_cast<uint32_t*>(at_column) = pack_pair<bf16>(v.x * scale, v.y * scale);
      }
      if (rows > 8) {
        *reinterpret_cast<uint32_t*>(at_column + 8 * stride) =
            pack_pair<bf16>(v.z * scale, v.w * scale);
      }
    }
  }
};

#endif

}  // namespace nibble::cuda

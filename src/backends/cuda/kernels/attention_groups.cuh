// SPDX-License-Identifier: MIT
// What the attention kernels with warpgroup products share: one group of four warps fills tiles,
// the others multiply.
#pragma once
#include "backends/cuda/device/wgmma_tiles.cuh"
#include "backends/cuda/kernels/attention_mma.cuh"

namespace nibble::cuda {

constexpr int kGroupThreads = 128, kWidth = 128;

// A thread's place: group -1 fills, the others multiply. Lane = 4 r + c of warp `warp` of its
// group.
struct GroupPlace {
  int group, warp, r, c;
  __device__ __forceinline__ GroupPlace() {
    // By a shuffle, so that branches around the products are seen to be a warp's, not a lane's.
    const int all_warps = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
    group = all_warps / 4 - 1, warp = all_warps % 4;
    r = int(threadIdx.x) % 32 / 4, c = int(threadIdx.x) % 4;
  }
};

// Of the stage of tile t: it is there; all have read it.
template <int kStages>
struct Barriers {
  uint32_t first;
  __device__ __forceinline__ PhaseBarrier full(int t) const {
    return {first + uint32_t(t % kStages) * 8};
  }
  __device__ __forceinline__ PhaseBarrier empty(int t) const {
    return {first + uint32_t(kStages + t % kStages) * 8};
  }
};

// A group of four warps copies rows of 128 elements; those from `limit` on become zero. e4m3 is
// widened on the way, and then it is there on return; bf16 is there when copies are done.
template <class K, int kTileRows>
__device__ __forceinline__ void fill(const WgmmaTile<kTileRows>& tile, const K* from,
                                     int64_t stride, int limit) {
  constexpr int kPieces = kWidth * int(sizeof(K)) / 16, kTogether = kGroupThreads / kPieces;
  constexpr int kBatch = 4;  // loads before the first store
  static_assert(kTileRows % (kTogether * kBatch) == 0);
  const int t = int(threadIdx.x) % kGroupThreads, piece = t % kPieces, first = t / kPieces;
  from += piece * (16 / int(sizeof(K)));
#pragma unroll 1
  for (int i = 0; i < kTileRows / kTogether; i += kBatch) {
    uint4 raw[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int row = first + (i + b) * kTogether;
      const bool wanted = row < limit;
      const K* p = from + (wanted ? row * stride : 0);
      if constexpr (std::is_same_v<K, bf16>) {
        copy_async(tile.at(row, piece), p, wanted);
      } else {
        raw[b] = make_uint4(0, 0, 0, 0);
        if (wanted) raw[b] = *reinterpret_cast<const uint4*>(p);
      }
    }
    if constexpr (!std::is_same_v<K, bf16>) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const uint32_t words[4] = {raw[b].x, raw[b].y, raw[b].z, raw[b].w};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t w[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            w[j] = widen_pair<bf16>(words[2 * half + j / 2] >> (16 * (j % 2)));
          }
          store_chunk(tile.at(first + (i + b) * kTogether, 2 * piece + half), w[0], w[1], w[2],
                      w[3]);
        }
      }
    }
  }
}

// A group's 64 rows of sums, from `row` of the tile on, by way of their place in the tile, which
// the group alone has read: lane (r, c) of warp w has rows 16 w + r (times `low`) and 8 further
// (`high`). Only the first `limit` rows exist. group: of those that multiply.
template <int kTileRows>
__device__ __forceinline__ void write_rows(const WgmmaTile<kTileRows>& tile, int row,
                                           const float (&sums)[64], float low, float high, bf16* to,
                                           int64_t stride, int limit, int group) {
  const int lane = int(threadIdx.x) % 32, r = lane / 4, c = lane % 4;
  const int of_warp = int(threadIdx.x) / 32 % 4 * 16;
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = h ? high : low;
      store_word(tile.at(row + of_warp + r + 8 * h, n) + 4 * c,
                 pack_pair<bf16>(sums[4 * n + 2 * h] * factor, sums[4 * n + 2 * h + 1] * factor));
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * (kWidth / 8); i += 32) {
    const int at = of_warp + i / (kWidth / 8), chunk = i % (kWidth / 8);
    if (at < limit) {
      *reinterpret_cast<uint4*>(to + at * stride + chunk * 8) =
          load_chunk(tile.at(row + at, chunk));
    }
  }
}

}  // namespace nibble::cuda

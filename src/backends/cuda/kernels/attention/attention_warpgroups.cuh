// SPDX-License-Identifier: MIT
// What the attention kernels with warpgroup products share: one group of four warps fills tiles,
// the others multiply.
#pragma once
#include "backends/cuda/device/wgmma_tiles.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"

namespace nibble::cuda {

constexpr int kWarpgroupThreads = 128, kWidth = 128;

// A thread's place: group -1 fills, the others multiply. Lane = 4 r + c of warp `warp` of its
// group.
struct WarpgroupRole {
  int group, warp, r, c;
  __device__ __forceinline__ WarpgroupRole() {
    // By a shuffle, so that branches around the products are seen to be a warp's, not a lane's.
    const int all_warps = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
    group = all_warps / 4 - 1, warp = all_warps % 4;
    r = int(threadIdx.x) % 32 / 4, c = int(threadIdx.x) % 4;
  }
};

// Of the stage of tile t: it is there; all have read it.
template <int kStages>
struct PipelineBarriers {
  uint32_t first;
  __device__ __forceinline__ Mbarrier full(int t) const {
    return {first + uint32_t(t % kStages) * 8};
  }
  __device__ __forceinline__ Mbarrier empty(int t) const {
    return {first + uint32_t(kStages + t % kStages) * 8};
  }
};

// A group of four warps copies rows of 128 elements, which are there when its copies are done;
// those from `limit` on become zero.
template <int kTileRows>
__device__ __forceinline__ void load_rows_async(const WgmmaTile<kTileRows>& tile, const bf16* from,
                                                int64_t stride, int limit) {
  constexpr int kPieces = kWidth * 2 / 16, kTogether = kWarpgroupThreads / kPieces;
  static_assert(kTileRows % (kTogether * 4) == 0);
  const int t = int(threadIdx.x) % kWarpgroupThreads, piece = t % kPieces, first = t / kPieces;
  const bf16* row = from + first * stride + piece * 8;
  const uint32_t to = tile.at(first, piece);
#pragma unroll
  for (int i = 0; i < kTileRows; i += kTogether) {
    cp_async16(to + uint32_t(i) * 128, row, first + i < limit);
    row += kTogether * stride;
    asm volatile("" : "+l"(row));  // not all addresses at once: the group has few registers
  }
}

// A group's 64 rows of sums, from `row` of the tile on, by way of their place in the tile, which
// the group alone has read: lane (r, c) of warp w has rows 16 w + r (times `low`) and 8 further
// (`high`). Only the first `limit` rows exist. group: of those that multiply.
template <int kTileRows>
__device__ __forceinline__ void store_tile_rows(const WgmmaTile<kTileRows>& tile, int row,
                                                const float (&sums)[64], float low, float high,
                                                bf16* to, int64_t stride, int limit, int group) {
  const int lane = int(threadIdx.x) % 32, r = lane / 4, c = lane % 4;
  const int of_warp = int(threadIdx.x) / 32 % 4 * 16;
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kWarpgroupThreads) : "memory");
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

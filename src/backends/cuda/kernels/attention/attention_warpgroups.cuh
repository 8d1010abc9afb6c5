// SPDX-License-Identifier: MIT
// What the warp-specialised attention kernels (wgmma) share: one producer warpgroup, the others are
// consumers; full and empty barriers; tile loads and the epilogue.
#pragma once
#include "backends/cuda/device_functions/wgmma_tiles.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"

namespace nibble::cuda {

constexpr int kWarpgroupThreads = 128;

// Heads that have kernels with wgmma.
constexpr bool has_wgmma_kernels(int64_t width) { return width == 64 || width == 128; }

// Role of a thread: warpgroup -1 is the producer, 0 .. are consumers. Lane = 4 r + c of warp `warp`
// of its warpgroup.
struct WarpgroupRole {
  int group, warp, r, c;
  __device__ __forceinline__ WarpgroupRole() {
    // Broadcast by shuffle, so that the compiler sees branches around wgmma as warp-uniform.
    const int all_warps = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
    group = all_warps / 4 - 1, warp = all_warps % 4;
    r = int(threadIdx.x) % 32 / 4, c = int(threadIdx.x) % 4;
  }
};

// mbarriers of the stage of tile t: filled by the producer, released by all consumers.
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

// cp.async of a tile's rows by one warpgroup; rows from `limit` on become zero.
template <int kTileRows, int kWidth>
__device__ __forceinline__ void load_rows_async(const WgmmaTile<kTileRows, kWidth>& tile,
                                                const bf16* from, int64_t stride, int limit) {
  constexpr int kPieces = kWidth * 2 / 16, kTogether = kWarpgroupThreads / kPieces;
  static_assert(kTogether % 8 == 0 && kTileRows % kTogether == 0);  // one swizzle for all
  const int t = int(threadIdx.x) % kWarpgroupThreads, piece = t % kPieces, first = t / kPieces;
  const bf16* row = from + first * stride + piece * 8;
  const uint32_t to = tile.at(first, piece);
#pragma unroll
  for (int i = 0; i < kTileRows; i += kTogether) {
    cp_async16(to + uint32_t(i) * 128, row, first + i < limit);
    row += kTogether * stride;
    asm volatile("" : "+l"(row));  // not all addresses at once: the producer has few registers
  }
}

// Epilogue of a consumer warpgroup: its 64 rows of sums, by way of its rows of the tile (from `row`
// on), which no other warpgroup reads. Lane (r, c) of warp w has rows 16 w + r (times `low`) and 8
// further (`high`). Only the first `limit` rows exist.
template <int kTileRows, int kWidth>
__device__ __forceinline__ void store_tile_rows(const WgmmaTile<kTileRows, kWidth>& tile, int row,
                                                const float (&sums)[kWidth / 2], float low,
                                                float high, bf16* to, int64_t stride, int limit,
                                                int group) {
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

// SPDX-License-Identifier: MIT
// The tile scheduler of attention_wgmma.cu, a persistent kernel: work tiles of 128 queries of one
// head, over all sequences and heads, claimed dynamically (atomic counter). Results do not depend
// on who claims what.
#pragma once
#include "backends/cuda/kernels/attention/attention_common.cuh"

namespace nibble::cuda {

// Up to 64 consecutive queries, for one consumer warpgroup.
struct QueryBlock {
  static constexpr int kRows = 64, kKeys = 128;
  int row, count;
  int sees;  // keys that the first query sees
  __device__ __forceinline__ int keys() const { return count > 0 ? sees + count - 1 : 0; }
  __device__ __forceinline__ int tiles() const { return (keys() + kKeys - 1) / kKeys; }
};

// A work tile: a query block for each of the two consumer warpgroups, of the same sequence and
// head.
struct WorkTile {
  QueryBlock blocks[2];
  int head, tiles;     // key tiles of 128
  int kv_begin, keys;  // known to the producer only
};

// Work tiles in order of length within a sequence (longest first), so that the last ones claimed
// are short.
struct TileScheduler {
  Sequences sequences;
  int heads;
  // Pair the first and the last remaining query block of a sequence instead of neighbours: when
  // every thread block has one work tile at most, this balances the causal mask.
  bool balanced;
  unsigned* counters;  // zero between launches: claims, finished blocks

  // Decodes work tile `index`, for whole warps; false: there are no more.
  __device__ __forceinline__ bool find(int index, WorkTile& u) const {
    constexpr int kRows = QueryBlock::kRows;
    const int lane = int(threadIdx.x) % 32;
    int at = index / heads;  // number within a head
    u.head = index - at * heads;
    for (int first = 0; first < sequences.count; first += 32) {
      Sequence s = {};
      if (first + lane < sequences.count) s = sequences.p[first + lane];
      const int units = (s.q_len + 2 * kRows - 1) / (2 * kRows);
      int last = units;
#pragma unroll
      for (int o = 1; o < 32; o <<= 1) {
        const int below = __shfl_up_sync(0xffffffffu, last, o);
        if (lane >= o) last += below;
      }
      const unsigned found = __ballot_sync(0xffffffffu, at < last);
      if (!found) {
        at -= __shfl_sync(0xffffffffu, last, 31);
        continue;
      }
      const int from = __ffs(int(found)) - 1;
      const auto get = [&](int v) { return __shfl_sync(0xffffffffu, v, from); };
      const int q_begin = get(s.q_begin), q_len = get(s.q_len), before = get(s.kv_len) - q_len + 1;
      at -= get(last - units);
      const int late = balanced ? (q_len + kRows - 1) / kRows - 1 - at : 2 * (get(units) - 1 - at);
      const int other = !balanced ? late + 1 : at < late ? at : -1;
      const auto block = [&](int i) -> QueryBlock {
        return {q_begin + kRows * i, i < 0 ? 0 : max(0, min(kRows, q_len - kRows * i)),
                before + kRows * i};
      };
      u.blocks[0] = block(late), u.blocks[1] = block(other);
      u.kv_begin = get(s.kv_begin), u.keys = max(u.blocks[0].keys(), u.blocks[1].keys());
      u.tiles = max(u.blocks[0].tiles(), u.blocks[1].tiles());
      return true;
    }
    return false;
  }

  // By one thread of a block (whose first work tile is blockIdx.x): claims the next; ends, where
  // the last block resets the counters.
  __device__ __forceinline__ int claim() const { return int(gridDim.x + atomicAdd(counters, 1u)); }
  __device__ __forceinline__ void finish_block() const {
    if (atomicAdd(counters + 1, 1u) + 1 == gridDim.x) counters[0] = counters[1] = 0;
  }
};

// The work tile in shared memory, written by the producer for the consumers, double-buffered.
struct WorkTileMailbox {
  int words[2][8];
  __device__ __forceinline__ void put(int k, const WorkTile& u) {
    int* const w = words[k % 2];
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      w[3 * g] = u.blocks[g].row, w[3 * g + 1] = u.blocks[g].count, w[3 * g + 2] = u.blocks[g].sees;
    }
    w[6] = u.head, w[7] = u.tiles;
  }
  // tiles == 0: no more work.
  __device__ __forceinline__ WorkTile get(int k) const {
    // Broadcast by shuffle, so that the compiler sees branches around wgmma as warp-uniform.
    const int word = words[k % 2][threadIdx.x % 8];
    const auto get = [&](int i) { return __shfl_sync(0xffffffffu, word, i); };
    return {{{get(0), get(1), get(2)}, {get(3), get(4), get(5)}}, get(6), get(7), 0, 0};
  }
};

}  // namespace nibble::cuda

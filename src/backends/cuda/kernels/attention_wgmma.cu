// SPDX-License-Identifier: MIT
// Attention for many queries a sequence with the warpgroup products of compute capability 9.0:
// bf16, heads of 128. A block takes 128 queries of one head; one thread asks for tiles of 128 keys
// and values (TMA), two groups of 64 queries each multiply. The scores of one tile become weights
// (maxima, exponentials) while the values of the one before are multiplied.
//
// The arithmetic is that of attention_flash.cu, in tiles of 128 keys instead of 64 (a NaN among
// values of keys a query may not see shows in the tile's earlier queries).
//
// The two groups' products take turns, so that one's softmax runs beside the other's products. On
// an H200 2048 tokens take 70 us (492 TFLOP/s; 8192 tokens 590, 8 x 2048 478); with tiles copied by
// a group of warps (cp.async) 94, as their instructions and their place in L1 stood in the others'
// way. Tensor cores are busy half of the time: a tile takes 3,100 clocks for 2,048 of products, and
// blocks of 2048 tokens have 3 us of beginning and end. An FP8 cache, which has to be widened by
// the warps that fill, was slower than in attention_flash.cu (199 against 277) and is left to it.
#include <cmath>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/tensor_copy.cuh"
#include "backends/cuda/kernels/attention_groups.cuh"
#include "backends/cuda/kernels/attention_maps.h"
#include "backends/cuda/kernels/attention_paths.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kGroups = 2, kThreads = (1 + kGroups) * kGroupThreads;
constexpr int kRows = 64, kQueries = kGroups * kRows, kKeys = 128, kStages = 3;
// One stage is on its way, and one is given back only when the scores of the next are begun.
static_assert(kStages >= 3);
using QueryTile = WgmmaTile<kQueries>;
using KeyTile = WgmmaTile<kKeys>;
constexpr size_t kSharedBytes = QueryTile::kBytes + kStages * 2 * KeyTile::kBytes + 1024;

struct WgmmaArgs {
  Heads<bf16> out;
  LogSums lse;
  Heads<const bf16> q;
  Heads<const bf16> k, v;
  Sequences sequences;
  int group;
  float scale;  // with log2 e
  CUtensorMap k_map, v_map;
};

#if defined(NIBBLE_HAS_WGMMA)

// 64 queries, their running softmax and sums. Lane (r, c) has rows 16 warp + r and 8 further.
struct Rows {
  float sums[64], largest[2], total[2];
};

// Scores become weights of the next product; returns the factors of the sums so far.
__device__ __forceinline__ void soften(float (&p)[64], Rows& rows, float scale,
                                       float (&factor)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float m = -INFINITY;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) m = fmaxf(m, fmaxf(p[4 * n + 2 * h], p[4 * n + 2 * h + 1]));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
    m = fmaxf(rows.largest[h], m * scale);  // the first key is seen by all: never -inf
    factor[h] = exp2_fast(rows.largest[h] - m);
    rows.largest[h] = m;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 4 * n + 2 * h; i < 4 * n + 2 * h + 2; ++i) {
        p[i] = exp2_fast(fmaf(p[i], scale, -m));
        sum += p[i];
      }
    }
    rows.total[h] = fmaf(rows.total[h], factor[h], sum);
  }
}

// What a group of queries needs to know of its place.
struct Place {
  int row, count;           // of the block's queries: the group's first, and how many there are
  int all_see, any_sees;    // row i of the group sees min(all_see + i, any_sees) keys
  int tiles, last_of_keys;  // of the block; the number of the last tile the group sees
  int group;
  bool in_turns;  // both groups have queries
};

// The groups' products take turns: one multiplies while the other's scores become weights. Both
// take tiles - 1 turns, whether they see the last tile or not.
__device__ __forceinline__ void begin_turn(const Place& at) {
  if (at.in_turns) {
    asm volatile("bar.sync %0, %1;" ::"r"(3 + at.group), "n"(kGroups * kGroupThreads) : "memory");
  }
}
__device__ __forceinline__ void end_turn(const Place& at) {
  if (at.in_turns) {
    asm volatile("bar.arrive %0, %1;" ::"r"(4 - at.group), "n"(kGroups * kGroupThreads) : "memory");
  }
}

__device__ __forceinline__ void mask(float (&p)[64], const Place& at, int key, int warp) {
  const int lane = int(threadIdx.x) % 32, r = lane / 4, c = lane % 4;
  if (key + kKeys <= at.all_see) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int seen = min(at.all_see + 16 * warp + r + 8 * h, at.any_sees) - key;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * n + 2 * c + i >= seen) p[4 * n + 2 * h + i] = -INFINITY;
      }
    }
  }
}

// All tiles for one group of queries.
template <class Stage>
__device__ __forceinline__ void attend(Rows& rows, const QueryTile& q, const Place& at, float scale,
                                       int warp, const Stage& stage,
                                       const Barriers<kStages>& barriers) {
#pragma unroll
  for (int i = 0; i < 64; ++i) rows.sums[i] = 0;
  rows.largest[0] = rows.largest[1] = -INFINITY;
  rows.total[0] = rows.total[1] = 0;
  const auto release = [&](int t) {
    if (threadIdx.x % 32 == 0) barriers.empty(t).arrive();
  };
  const auto skip = [&](int first) {  // tiles that these queries do not see
    for (int t = first; t < at.tiles; ++t) {
      barriers.full(t).wait(unsigned(t / kStages));
      release(t);
    }
  };
  if (at.row >= at.count) return skip(0);
  float p[64];
  const auto score = [&](int t) {
    barriers.full(t).wait(unsigned(t / kStages));
    const KeyTile k = stage(t, 0);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kWidth / 16; ++s) {
      wgmma_64x128(p, q.along_columns(at.row, s), k.along_columns(0, s), s > 0);
    }
    wgmma_commit();
  };
  uint32_t weights[kKeys / 16][4];
  const auto soften_tile = [&](int t, float(&factor)[2]) {
    pin(p);
    mask(p, at, t * kKeys, warp);
    soften(p, rows, scale, factor);
  };
  const auto pack = [&] {
#pragma unroll
    for (int s = 0; s < kKeys / 16; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int from = 4 * (2 * s + i / 2) + 2 * (i % 2);
        weights[s][i] = pack_pair<bf16>(p[from], p[from + 1]);
      }
    }
  };
  const auto end_turn_of = [&](int t) {  // the second group's last turn is followed by none
    if (at.group == 0 || t + 2 < at.tiles) end_turn(at);
  };
  if (at.group == 1 && at.tiles > 1) end_turn(at);  // the first group's turn
  float factor[2];
  score(0);
  wgmma_wait<0>();
  soften_tile(0, factor);
  pack();
  const auto multiply = [&](int t) {
    const KeyTile v = stage(t, 1);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kKeys / 16; ++s) {
      wgmma_64x128_rows(rows.sums, weights[s], v.along_rows(s));
    }
    wgmma_commit();
  };
  for (int t = 0; t < at.last_of_keys; ++t) {
    begin_turn(at);
    score(t + 1);
    multiply(t);
    end_turn_of(t);
    wgmma_wait<1>();  // the scores are there; the values are multiplied meanwhile
    soften_tile(t + 1, factor);
    pin(p);
    wgmma_wait<0>();
    pin(rows.sums);
    release(t);
#pragma unroll
    for (int i = 0; i < 64; ++i) rows.sums[i] *= factor[i / 2 % 2];
    pack();
  }
  multiply(at.last_of_keys);
  for (int t = at.last_of_keys; t + 1 < at.tiles; ++t) {
    begin_turn(at);
    end_turn_of(t);
  }
  wgmma_wait<0>();
  pin(rows.sums);
  release(at.last_of_keys);
  skip(at.last_of_keys + 1);
}

// The group's rows by way of its queries' place in shared memory, which nobody else reads.
__device__ __forceinline__ void write(const WgmmaArgs& a, const Rows& rows, const QueryTile& q,
                                      const Place& at, int64_t first, int head, int group,
                                      int warp) {
  const int lane = int(threadIdx.x) % 32, r = lane / 4, c = lane % 4;
  float total[2], inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    total[h] = rows.total[h] + __shfl_xor_sync(0xffffffffu, rows.total[h], 1);
    total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
    inverse[h] = 1.0f / total[h];
    const int row = at.row + 16 * warp + r + 8 * h;
    if (c == 0 && row < at.count) {
      a.lse.set(first + row, head, (rows.largest[h] + log2f(total[h])) * kLn2);
    }
  }
  write_rows<kQueries>(q, at.row, rows.sums, inverse[0], inverse[1],
                       a.out.at(first + at.row, head, kWidth), a.out.stride, at.count - at.row,
                       group);
}

#endif

__global__ void __launch_bounds__(kThreads, 1) wgmma_kernel(const __grid_constant__ WgmmaArgs a) {
#if defined(NIBBLE_HAS_WGMMA)
  enter();
  extern __shared__ unsigned char shared[];
  __shared__ __align__(8) uint64_t barrier_words[2 * kStages + 1];
  const GroupPlace place;
  const int group = place.group, warp = place.warp;
  const Tile tile = find_tile(a.sequences, kQueries, int(blockIdx.y));
  if (tile.sequence < 0) return;
  const Sequence s = a.sequences.p[tile.sequence];
  // Late queries see the most keys and go first.
  const int first = (tile.tiles - 1 - tile.tile) * kQueries, count = min(kQueries, s.q_len - first);
  const int head = int(blockIdx.x), kv_head = head / a.group;
  const int before = s.kv_len - s.q_len + 1;  // keys that query 0 sees
  const int keys = before + first + count - 1, tiles = (keys + kKeys - 1) / kKeys;

  const uint32_t base = (shared_address(shared) + 1023) / 1024 * 1024;
  const QueryTile q_tile{base};
  const auto stage = [&](int t, int which) {
    return KeyTile{base + QueryTile::kBytes + uint32_t(t % kStages * 2 + which) * KeyTile::kBytes};
  };
  const Barriers<kStages> barriers{shared_address(barrier_words)};
  const PhaseBarrier q_there{shared_address(barrier_words + 2 * kStages)};
  if (threadIdx.x == 0) {
    q_there.init(kGroupThreads);
    for (int i = 0; i < kStages; ++i) {
      barriers.full(i).init(1);
      barriers.empty(i).init(4 * kGroups);
    }
    publish_barriers();
  }
  __syncthreads();

  if (group < 0) {
    give_registers<40>();
    const int whole = keys / kKeys;
    const auto is_free = [&](int t) {
      if (t >= kStages) barriers.empty(t).wait(unsigned(t / kStages - 1));
    };
    const auto load = [&](int t) {
      const uint32_t barrier = barriers.full(t).address;
      arrive_expecting(barrier, 2 * KeyTile::kBytes);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        tensor_load(stage(t, 0).base + half * KeyTile::kHalfBytes, a.k_map, 64 * half, kv_head,
                    s.kv_begin + t * kKeys, barrier);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        tensor_load(stage(t, 1).base + half * KeyTile::kHalfBytes, a.v_map, 64 * half, kv_head,
                    s.kv_begin + t * kKeys, barrier);
      }
    };
    if (threadIdx.x == 0 && whole > 0) load(0);
    fill(q_tile, a.q.at(int64_t(s.q_begin) + first, head, kWidth), a.q.stride, count);
    asm volatile("cp.async.wait_all;" ::: "memory");
    fence_for_wgmma();
    q_there.arrive();
    if (threadIdx.x == 0) {
      for (int t = 1; t < whole; ++t) {
        is_free(t);
        load(t);
      }
    }
    if (whole == tiles) return;
    __syncwarp();
    asm volatile("bar.sync 5, %0;" ::"n"(kGroupThreads) : "memory");
    const int there = keys - whole * kKeys;
    is_free(whole);
    fill(stage(whole, 0), a.k.at(int64_t(s.kv_begin) + whole * kKeys, kv_head, kWidth), a.k.stride,
         there);
    fill(stage(whole, 1), a.v.at(int64_t(s.kv_begin) + whole * kKeys, kv_head, kWidth), a.v.stride,
         there);
    asm volatile("cp.async.wait_all;" ::: "memory");
    fence_for_wgmma();
    asm volatile("bar.sync 5, %0;" ::"n"(kGroupThreads) : "memory");
    if (threadIdx.x == 0) barriers.full(whole).arrive();
    return;
  }
  take_registers<232>();
  const int row = group * kRows;
  Place at;
  at.row = row, at.count = count, at.tiles = tiles;
  at.group = group, at.in_turns = count > kRows;
  at.all_see = before + first + min(row, count - 1);
  at.any_sees = before + first + min(row + kRows, count) - 1;
  at.last_of_keys = (max(at.any_sees, 1) - 1) / kKeys;
  Rows rows;
  q_there.wait(0);
  attend(rows, q_tile, at, a.scale, warp, stage, barriers);
  if (row >= count) return;
  write(a, rows, q_tile, at, int64_t(s.q_begin) + first, head, group, warp);
#endif
}

bool run(const Context& c, const AttentionCall& call) {
  allow_shared(c, wgmma_kernel);
  WgmmaArgs args{heads<bf16>(call.out),
                 log_sums(call.lse),
                 heads<const bf16>(call.q),
                 heads<const bf16>(call.kv.k),
                 heads<const bf16>(call.kv.v),
                 sequences_of(call.sequences),
                 int(call.group()),
                 kLog2E / std::sqrt(float(kWidth)),
                 {},
                 {}};
  if (!map_heads(args.k_map, call.kv.k, kKeys) || !map_heads(args.v_map, call.kv.v, kKeys)) {
    return false;
  }
  const unsigned tiles = tile_limit(call.tokens(), call.sequences.dim(0), kQueries);
  launch(c, {dim3(unsigned(call.q_heads()), tiles), dim3(kThreads), kSharedBytes}, wgmma_kernel,
         args);
  return true;
}

}  // namespace

bool attention_wgmma(const Context& c, const AttentionCall& a) {
  if (c.capability != 90 || a.q.dtype != DType::bf16 || a.kv.k.dtype != DType::bf16 ||
      a.width() != kWidth || !tensor_core_types(a) ||
      tile_limit(a.tokens(), a.sequences.dim(0), kQueries) > 65535 ||
      c.shared_per_block < kSharedBytes + 64 || !heads_aligned(a.out, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  return run(c, a);
}

}  // namespace nibble::cuda

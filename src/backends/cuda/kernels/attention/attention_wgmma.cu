// SPDX-License-Identifier: MIT
// FlashAttention-3 style forward with wgmma and TMA: many queries a sequence, compute capability
// 9.0, bf16, heads of 64 or 128. Chosen for prefill and training after the two decode kernels have
// declined.
//
// Persistent, warp-specialised: grid min(work tiles, SMs); a work tile is 128 queries of one head
// (attention_scheduler.cuh). A producer warpgroup, of which one thread issues the TMA loads of
// 128-key tiles into three stages (ragged last tiles by cp.async of all its threads); two consumer
// warpgroups with 64 queries each. Within a warpgroup, the softmax of tile t + 1 overlaps P V of
// tile t; between them, ping-pong named barriers order the wgmmas so that one's softmax runs beside
// the other's products. The next work tile's loads are in flight while this one ends; queries are
// held in registers, which frees their shared memory for the next ones.
//
// The arithmetic is that of attention_flash.cu, in tiles of 128 keys instead of 64 (a NaN among
// values of masked keys shows in the tile's earlier queries).
//
// On an H200, 32 heads of 128, 2048 tokens take 60.6 us (567 TFLOP/s), 8192 870, 8 x 2048 481, 512
// tokens 10.1. Not persistent (one work tile a block): 69, 920, 563 and 11.2; with cp.async by a
// producer warpgroup instead of TMA, whose instructions and L1 traffic stand in the consumers' way,
// 94, 1,270, 721 and 12.9.
//
// What bounds it: a tile of a warpgroup is a chain of 2,700 clocks (wgmma issue and wait 1,200,
// maxima 300, exponentials 900, ping-pong 200), in which the tensor cores work 2,048 for both
// warpgroups. Tried and dropped: waiting for P V only after the exponentials (63.6; 8192 tokens
// 830), a quarter or a third of the exponentials as polynomials (65), rescaling only where a
// maximum moves by more than 8, maxima of both rows first (no gain). An f8_e4m3 cache, which the
// producer has to widen, was slower than in attention_flash.cu and is left to it.
#include <cmath>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/tma.cuh"
#include "backends/cuda/kernels/attention/attention_paths.h"
#include "backends/cuda/kernels/attention/attention_softmax.cuh"
#include "backends/cuda/kernels/attention/attention_tensor_maps.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kConsumers = 2, kThreads = (1 + kConsumers) * kWarpgroupThreads;
constexpr int kRows = QueryBlock::kRows, kQueries = kConsumers * kRows, kKeys = QueryBlock::kKeys;
// Three stages: one in flight, and one is released only after the scores of the next were issued.
constexpr int kStages = 3;
template <int kWidth>
using QueryTile = WgmmaTile<kQueries, kWidth>;
template <int kWidth>
using KeyTile = WgmmaTile<kKeys, kWidth>;
template <int kWidth>
constexpr size_t kSharedBytes =
    QueryTile<kWidth>::kBytes + kStages * 2 * KeyTile<kWidth>::kBytes + 1024;

struct WgmmaArgs {
  Heads<bf16> out;
  LseView lse;
  Heads<const bf16> k, v;
  TileScheduler scheduler;
  int group;
  float scale;  // with log2 e
  CUtensorMap q_map, k_map, v_map;
};

#if defined(NIBBLE_HAS_WGMMA)

// What a consumer warpgroup knows of its work tile.
struct ConsumerState {
  QueryBlock block;
  int tiles, last;   // of the work tile; the last one that this warpgroup sees
  int group, stage;  // stage counter of the work tile's first tile
  bool ping_pong;    // both warpgroups have queries, and about as many tiles
};

// Ping-pong: one warpgroup issues wgmmas while the other does its softmax. Both take tiles - 1
// turns, whether they see the last tile or not. Named barriers 3 and 4.
__device__ __forceinline__ void ping_pong_wait(const ConsumerState& at) {
  if (at.ping_pong) {
    asm volatile("bar.sync %0, %1;" ::"r"(3 + at.group), "n"(kConsumers * kWarpgroupThreads)
                 : "memory");
  }
}
__device__ __forceinline__ void ping_pong_signal(const ConsumerState& at) {
  if (at.ping_pong) {
    asm volatile("bar.arrive %0, %1;" ::"r"(4 - at.group), "n"(kConsumers * kWarpgroupThreads)
                 : "memory");
  }
}

// Mainloop of a consumer warpgroup over the key tiles of a work tile.
template <int kWidth, class Stage>
__device__ __forceinline__ void attend(SoftmaxTile<kWidth>& rows,
                                       const QueryFragments<kWidth>& queries,
                                       const ConsumerState& at, float scale, int warp,
                                       const Stage& stage,
                                       const PipelineBarriers<kStages>& barriers) {
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) rows.sums[i] = 0;
  rows.row_max[0] = rows.row_max[1] = -INFINITY;
  rows.row_sum[0] = rows.row_sum[1] = 0;
  const auto wait_for = [&](int t) {
    barriers.full(at.stage + t).wait(unsigned((at.stage + t) / kStages));
  };
  const auto release = [&](int t) {
    if (threadIdx.x % 32 == 0) barriers.empty(at.stage + t).arrive();
  };
  const auto skip = [&](int first) {  // tiles that these queries do not see
#pragma unroll 1
    for (int t = first; t < at.tiles; ++t) {
      wait_for(t);
      __syncwarp();  // no lane is a phase behind the one that releases the stage
      release(t);
    }
  };
  if (at.block.count == 0) return skip(0);
  float p[64];
  const auto score = [&](int t) {
    wait_for(t);
    const uint64_t keys = stage(at.stage + t, 0).desc_k_major(0, 0);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kWidth / 16; ++s) {
      wgmma_64x128_rs(p, queries.words[s], KeyTile<kWidth>::advance_k_major(keys, s), s > 0);
    }
    wgmma_commit();
  };
  uint32_t weights[kKeys / 16][4];
  const auto softmax_tile = [&](int t, float(&factor)[2]) {
    warpgroup_fence_operand(p);
    mask(p, at.block, t * kKeys, warp);
    online_softmax(p, rows, scale, factor);
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
  const auto signal_after = [&](int t) {  // none follows the second warpgroup's last turn
    if (at.group == 0 || t + 2 < at.tiles) ping_pong_signal(at);
  };
  if (at.group == 1 && at.tiles > 1) ping_pong_signal(at);  // the first warpgroup's turn
  float factor[2];
  score(0);
  wgmma_wait<0>();
  softmax_tile(0, factor);
  pack();
  const auto multiply = [&](int t) {
    const uint64_t values = stage(at.stage + t, 1).desc_mn_major(0);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kKeys / 16; ++s) {
      wgmma_rs_mn(rows.sums, weights[s], KeyTile<kWidth>::advance_mn_major(values, s));
    }
    wgmma_commit();
  };
#pragma unroll 1
  for (int t = 0; t < at.last; ++t) {
    ping_pong_wait(at);
    score(t + 1);
    multiply(t);
    signal_after(t);
    wgmma_wait<1>();  // scores are ready; P V still runs
    softmax_tile(t + 1, factor);
    warpgroup_fence_operand(p);
    wgmma_wait<0>();
    warpgroup_fence_operand(rows.sums);
    release(t);
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) rows.sums[i] *= factor[i / 2 % 2];
    pack();
  }
  multiply(at.last);
#pragma unroll 1
  for (int t = at.last; t + 1 < at.tiles; ++t) {
    ping_pong_wait(at);
    signal_after(t);
  }
  wgmma_wait<0>();
  warpgroup_fence_operand(rows.sums);
  release(at.last);
  skip(at.last + 1);
}

#endif

template <int kWidth>
__global__ void __launch_bounds__(kThreads, 1) wgmma_kernel(const __grid_constant__ WgmmaArgs a) {
#if defined(NIBBLE_HAS_WGMMA)
  pdl_enter();
  extern __shared__ unsigned char shared[];
  __shared__ __align__(8) uint64_t barrier_words[2 * kStages + 2];
  __shared__ WorkTileMailbox mailbox;
  __shared__ int next_tile[2];
  const WarpgroupRole place;
  const int group = place.group, warp = place.warp;
  const uint32_t base = (shared_address(shared) + 1023) / 1024 * 1024;
  using KeyTile = KeyTile<kWidth>;
  using QueryTile = QueryTile<kWidth>;
  const QueryTile q_tile{base};
  const auto stage = [&](int n, int which) {
    return KeyTile{base + QueryTile::kBytes + uint32_t(n % kStages * 2 + which) * KeyTile::kBytes};
  };
  const PipelineBarriers<kStages> barriers{shared_address(barrier_words)};
  const PipelineBarriers<1> q_barriers{shared_address(barrier_words + 2 * kStages)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barriers.full(i).init(1);
      barriers.empty(i).init(4 * kConsumers);
    }
    q_barriers.full(0).init(1);
    q_barriers.empty(0).init(4 * kConsumers);
    mbarrier_init_fence();
  }
  __syncthreads();

  int first_stage = 0;  // of the work tile
  if (group < 0) {
    warpgroup_reg_dealloc<40>();
    const auto wait_empty = [&](int n) {
      if (n >= kStages) barriers.empty(n).wait(unsigned(n / kStages - 1));
    };
    const auto producer_sync = [] {
      __syncwarp();
      asm volatile("bar.sync 5, %0;" ::"n"(kWarpgroupThreads) : "memory");
    };
    int index = int(blockIdx.x);
    for (int k = 0;; ++k) {
      WorkTile u = {};
      const bool more = a.scheduler.find(index, u);
      const int kv_head = u.head / a.group, whole = u.keys / kKeys;
      if (threadIdx.x == 0) {
        const uint32_t there = q_barriers.full(0).address;
        if (k > 0) q_barriers.empty(0).wait(unsigned(k - 1));
        mailbox.put(k, u);
        if (!more) {
          mbarrier_arrive(there);
          a.scheduler.finish_block();
          return;
        }
        const int groups = u.blocks[1].count > 0 ? 2 : 1;
        mbarrier_arrive_expect_tx(there, QueryTile::kBytes / kConsumers * uint32_t(groups));
        for (int g = 0; g < groups; ++g) {
          tma_load_head_rows<kWidth>(q_tile.at(g * kRows, 0), QueryTile::kHalfBytes, a.q_map,
                                     u.head, u.blocks[g].row, there);
        }
#pragma unroll 1
        for (int t = 0; t < whole; ++t) {
          const int n = first_stage + t, row = u.kv_begin + t * kKeys;
          wait_empty(n);
          const uint32_t full = barriers.full(n).address;
          mbarrier_arrive_expect_tx(full, 2 * KeyTile::kBytes);
          tma_load_head_rows<kWidth>(stage(n, 0).base, KeyTile::kHalfBytes, a.k_map, kv_head, row,
                                     full);
          tma_load_head_rows<kWidth>(stage(n, 1).base, KeyTile::kHalfBytes, a.v_map, kv_head, row,
                                     full);
        }
        next_tile[k % 2] = a.scheduler.claim();
      }
      if (!more) return;
      producer_sync();
      index = next_tile[k % 2];
      const int last = first_stage + whole, row = whole * kKeys;
      first_stage += u.tiles;
      if (whole == u.tiles) continue;
      // The ragged last tile: keys behind the end are zero, whatever lies in their memory.
      wait_empty(last);
      load_rows_async(stage(last, 0), a.k.at(int64_t(u.kv_begin) + row, kv_head, kWidth),
                      a.k.stride, u.keys - row);
      load_rows_async(stage(last, 1), a.v.at(int64_t(u.kv_begin) + row, kv_head, kWidth),
                      a.v.stride, u.keys - row);
      asm volatile("cp.async.wait_all;" ::: "memory");
      fence_proxy_async();
      producer_sync();
      if (threadIdx.x == 0) barriers.full(last).arrive();
    }
  }
  warpgroup_reg_alloc<232>();
#pragma unroll 1
  for (int k = 0;; ++k) {
    q_barriers.full(0).wait(unsigned(k));
    const WorkTile u = mailbox.get(k);
    QueryFragments<kWidth> queries;
    if (u.tiles > 0) load_query_fragments(queries, q_tile, group, warp);
    __syncwarp();
    if (threadIdx.x % 32 == 0) q_barriers.empty(0).arrive();
    if (u.tiles == 0) return;
    ConsumerState at;
    at.block = group == 0 ? u.blocks[0] : u.blocks[1];
    at.tiles = u.tiles, at.last = at.block.tiles() - 1;
    at.group = group, at.stage = first_stage;
    at.ping_pong = u.blocks[1].count > 0 && abs(u.blocks[0].tiles() - u.blocks[1].tiles()) < 2;
    SoftmaxTile<kWidth> rows;
    attend(rows, queries, at, a.scale, warp, stage, barriers);
    if (at.block.count > 0) write(a.out, a.lse, rows, at.block, u.head, warp);
    first_stage += u.tiles;
  }
#endif
}

template <int kWidth>
bool run(const Context& c, const AttentionCall& call) {
  if (c.shared_per_block < kSharedBytes<kWidth> + 256) return false;
  allow_shared(c, wgmma_kernel<kWidth>);
  const int64_t tokens = call.tokens(), sequences = call.sequences.dim(0);
  const int64_t units = call.q_heads() * (sequences == 1 ? (tokens + kQueries - 1) / kQueries
                                                         : tile_limit(tokens, sequences, kQueries));
  const int grid = int(std::min<int64_t>(units, c.sm_count));
  WgmmaArgs args{heads<bf16>(call.out),
                 lse_view(call.lse),
                 heads<const bf16>(call.kv.k),
                 heads<const bf16>(call.kv.v),
                 {sequences_of(call.sequences), int(call.q_heads()), units <= grid, c.counters()},
                 int(call.group()),
                 kLog2E / std::sqrt(float(kWidth)),
                 {},
                 {},
                 {}};
  if (!map_heads(args.q_map, call.q, kRows) || !map_heads(args.k_map, call.kv.k, kKeys) ||
      !map_heads(args.v_map, call.kv.v, kKeys)) {
    return false;
  }
  launch(c, {dim3(unsigned(grid)), dim3(kThreads), kSharedBytes<kWidth>}, wgmma_kernel<kWidth>,
         args);
  return true;
}

}  // namespace

bool attention_wgmma(const Context& c, const AttentionCall& a) {
  if (c.capability != 90 || a.q.dtype != DType::bf16 || a.kv.k.dtype != DType::bf16 ||
      !has_wgmma_kernels(a.width()) || !tensor_core_types(a) ||
      tile_limit(a.tokens(), a.sequences.dim(0), kQueries) > 65535 ||
      !heads_aligned(a.out, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  return a.width() == 64 ? run<64>(c, a) : run<128>(c, a);
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Attention backward with wgmma: compute capability 9.0, bf16, heads of 64 or 128. First choice of
// attention_back().
//
// Two kinds of blocks: dq (resident: 128 queries and dout of one head; streamed: key and value
// tiles) and dk/dv (resident: 128 keys and values; streamed: query and dout tiles of all heads of
// the group). One launch has both kinds while they are few, so that one fills the idle SMs of the
// other. When all tokens are one tile, even that is too few blocks: then a dk/dv tile is a cluster
// whose blocks divide the heads of the group (as evenly as goes; a block may have none), and dk, dv
// are reduced through DSMEM in the order of the heads (attention_dsmem_reduce.cuh).
//
// Warp-specialised: a producer warpgroup loads streamed tiles of 64 rows (TMA; ragged last tiles by
// cp.async) into four stages with full and empty mbarriers; two consumer warpgroups own 64 resident
// rows each. In dq blocks, dS K of one tile runs while the scores of the next are computed.
//
// Measured on an H200, in TFLOP/s beside attention_back_flash.cu: 2048 tokens 384 (156), 8 x 2048
// 370-405 (212); with cp.async instead of TMA 302 and 332. Scores and dP are computed twice, once
// in either kind: seven products for the five that are counted, so tensor cores run at two thirds
// of what a GEMM of 8192^3 reaches. Tried without gain: resident rows in registers, exponentials
// beside the second product.
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/tma.cuh"
#include "backends/cuda/kernels/attention/attention_back_args.cuh"
#include "backends/cuda/kernels/attention/attention_dsmem_reduce.cuh"
#include "backends/cuda/kernels/attention/attention_paths.h"
#include "backends/cuda/kernels/attention/attention_tensor_maps.h"
#include "backends/cuda/kernels/attention/attention_warpgroups.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kConsumers = 2, kThreads = (1 + kConsumers) * kWarpgroupThreads;
constexpr int kRows = 64, kResidentRows = kConsumers * kRows, kTile = 64, kStages = 4;
// A stage is released only after the scores of the next have been issued.
static_assert(kStages >= 2);
template <int kWidth>
using ResidentTile = WgmmaTile<kResidentRows, kWidth>;
template <int kWidth>
using StreamedTile = WgmmaTile<kTile, kWidth>;
constexpr size_t kStatsBytes = size_t(kStages) * 2 * kTile * sizeof(float);
template <int kWidth>
constexpr size_t kSharedBytes = 2 * ResidentTile<kWidth>::kBytes +
                                kStages * 2 * StreamedTile<kWidth>::kBytes + kStatsBytes + 1024;

using BackArgs = FlashBackArgs<bf16>;
struct BackMaps {
  CUtensorMap q, k, v, dout;
};

#if defined(NIBBLE_HAS_WGMMA)

// Map of shared memory: two resident tiles, stages of two streamed tiles, lse and delta of each
// stage.
template <int kWidth>
struct Memory {
  using ResidentTile = ResidentTile<kWidth>;
  using StreamedTile = StreamedTile<kWidth>;
  uint32_t base;
  PipelineBarriers<kStages> barriers;

  __device__ __forceinline__ ResidentTile resident(int which) const {
    return {base + uint32_t(which) * ResidentTile::kBytes};
  }
  __device__ __forceinline__ StreamedTile stage(int t, int which) const {
    return {base + 2 * ResidentTile::kBytes +
            uint32_t(t % kStages * 2 + which) * StreamedTile::kBytes};
  }
  __device__ __forceinline__ Mbarrier resident_full() const {
    return {barriers.first + 2 * kStages * 8};
  }
  // lse (0) and delta (1) of the stage's queries.
  __device__ __forceinline__ uint32_t stats(int t, int which) const {
    return base + 2 * ResidentTile::kBytes + kStages * 2 * StreamedTile::kBytes +
           uint32_t((t % kStages * 2 + which) * kTile) * 4;
  }
};

// Rows of heads as TMA and as the threads address them.
template <int kWidth>
struct Source {
  const CUtensorMap* map;
  Heads<const bf16> rows;
  // TMA, by one thread; completes on the barrier.
  template <int kTileRows>
  __device__ __forceinline__ void copy(const WgmmaTile<kTileRows, kWidth>& tile, int64_t first,
                                       int head, uint32_t barrier) const {
#pragma unroll
    for (int i = 0; i < kTileRows; i += kTile) {
      tma_load_head_rows<kWidth>(tile.base + uint32_t(i) * 128, tile.kHalfBytes, *map, head,
                                 int(first) + i, barrier);
    }
  }
  // cp.async by the producer warpgroup, up to `limit`; zero behind it.
  template <int kTileRows>
  __device__ __forceinline__ void load_ragged_rows(const WgmmaTile<kTileRows, kWidth>& tile,
                                                   int64_t first, int head, int limit) const {
    load_rows_async(tile, rows.at(first, head, kWidth), rows.stride, limit);
  }
};

// Producer: rows [first, first + limit) of a head of x and y into two tiles. Whole tiles by TMA; in
// a last, ragged tile the rows behind the sequence's end belong to another sequence and must be
// zero, so the threads copy it.
template <int kTileRows, int kWidth>
__device__ __forceinline__ void load_two_tiles(const WgmmaTile<kTileRows, kWidth>& x_tile,
                                               const WgmmaTile<kTileRows, kWidth>& y_tile,
                                               const Source<kWidth>& x, const Source<kWidth>& y,
                                               int64_t first, int head, int limit,
                                               const Mbarrier& there) {
  if (limit >= kTileRows) {
    if (threadIdx.x != 0) return there.arrive();
    mbarrier_arrive_expect_tx(there.address, 2 * WgmmaTile<kTileRows, kWidth>::kBytes);
    x.copy(x_tile, first, head, there.address);
    y.copy(y_tile, first, head, there.address);
    return;
  }
  x.load_ragged_rows(x_tile, first, head, limit);
  y.load_ragged_rows(y_tile, first, head, limit);
  asm volatile("cp.async.wait_all;" ::: "memory");
  fence_proxy_async();
  there.arrive();
}

// sums = resident rows from `row` on times streamed rows, over the head's columns.
template <int kWidth>
__device__ __forceinline__ void product(float (&sums)[32],
                                        const WgmmaTile<kResidentRows, kWidth>& resident, int row,
                                        const WgmmaTile<kTile, kWidth>& streamed) {
#pragma unroll
  for (int s = 0; s < kWidth / 16; ++s) {
    wgmma_64x64_ss(sums, resident.desc_k_major(row, s), streamed.desc_k_major(0, s), s > 0);
  }
}

// Scores or dS as the A operand of the second product (64 x 64, bf16).
struct AFragments {
  uint32_t a[kTile / 16][4];
  __device__ __forceinline__ void pack(const float (&w)[32]) {
#pragma unroll
    for (int s = 0; s < kTile / 16; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int from = 4 * (2 * s + i / 2) + 2 * (i % 2);
        a[s][i] = pack_pair<bf16>(w[from], w[from + 1]);
      }
    }
  }
};
template <int kWidth>
__device__ __forceinline__ void accumulate(float (&sums)[kWidth / 2], const AFragments& f,
                                           const WgmmaTile<kTile, kWidth>& streamed) {
#pragma unroll
  for (int s = 0; s < kTile / 16; ++s) wgmma_rs_mn(sums, f.a[s], streamed.desc_mn_major(s));
}

__device__ __forceinline__ float2 load_pair(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}

// Initialises the barriers. Warpgroup -1 is the producer, the others consume.
template <int kWidth>
__device__ __forceinline__ Memory<kWidth> prepare(unsigned char* shared, uint64_t* barrier_words) {
  const Memory<kWidth> m{(shared_address(shared) + 1023) / 1024 * 1024,
                         {shared_address(barrier_words)}};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      m.barriers.full(i).init(kWarpgroupThreads);
      m.barriers.empty(i).init(kConsumers * kWarpgroupThreads);
    }
    m.resident_full().init(kWarpgroupThreads);
    mbarrier_init_fence();
  }
  __syncthreads();
  return m;
}

// dq of 128 queries of one head.
template <int kWidth>
__device__ __forceinline__ void back_queries(const BackArgs& a, const BackMaps& maps,
                                             const Memory<kWidth>& m, const Tile& tile, int head) {
  const auto [group, warp, r, c] = WarpgroupRole();
  const Sequence s = a.sequences.p[tile.sequence];
  // Long rows first: late queries see the most keys.
  const int first = (tile.tiles - 1 - tile.tile) * kResidentRows,
            count = min(kResidentRows, s.q_len - first);
  const int kv_head = head / a.group;
  const int64_t token = int64_t(s.q_begin) + first;
  const int tiles = (first + count + kTile - 1) / kTile;

  if (group < 0) {
    warpgroup_reg_dealloc<24>();
    using Source = Source<kWidth>;
    const Source q{&maps.q, a.q}, dout{&maps.dout, a.dout}, k{&maps.k, a.k}, v{&maps.v, a.v};
    load_two_tiles(m.resident(0), m.resident(1), q, dout, token, head, count, m.resident_full());
    for (int t = 0; t < tiles; ++t) {
      if (t >= kStages) m.barriers.empty(t).wait(unsigned(t / kStages - 1));
      load_two_tiles(m.stage(t, 0), m.stage(t, 1), k, v, int64_t(s.q_begin) + t * kTile, kv_head,
                     s.q_len - t * kTile, m.barriers.full(t));
    }
    return;
  }
  warpgroup_reg_alloc<240>();
  const int row = group * kRows, query = row + 16 * warp + r;  // the lane's first
  float lse[2] = {}, delta[2] = {};                            // of it and of 8 further
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int at = query + 8 * h;
    if (at >= count) continue;
    lse[h] = a.lse[(token + at) * a.lse_stride + head] * kLog2E;
    delta[h] = a.delta[(token + at) * a.q_heads + head];
  }
  const float scale = a.scale * kLog2E;
  float dq[kWidth / 2], p[32], ds[32];
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) dq[i] = 0;
  const auto issue_scores = [&](int t) {
    m.barriers.full(t).wait(unsigned(t / kStages));
    wgmma_fence();
    product(p, m.resident(0), row, m.stage(t, 0));
    product(ds, m.resident(1), row, m.stage(t, 1));
    wgmma_commit();
  };
  // Key tiles that this warpgroup's queries see; none if it has no queries.
  const int seen = row < count ? (first + min(row + kRows, count) + kTile - 1) / kTile : 0;
  AFragments factors;
  const auto compute_ds = [&](int t) {
    warpgroup_fence_operand(p), warpgroup_fence_operand(ds);
    const bool masked = t * kTile + kTile - 1 > first + row;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int h = i / 2 % 2;
      const float weight = exp2_fast(fmaf(p[i], scale, -lse[h]));
      ds[i] = weight * (ds[i] - delta[h]);
      if (masked && t * kTile + i / 4 * 8 + 2 * c + i % 2 > first + query + 8 * h) ds[i] = 0;
    }
    factors.pack(ds);
  };
  const auto issue_dq = [&](int t) {
    wgmma_fence();
    accumulate(dq, factors, m.stage(t, 0));
    wgmma_commit();
  };
  if (seen > 0) {
    m.resident_full().wait(0);
    issue_scores(0);
    wgmma_wait<0>();
    compute_ds(0);
    for (int t = 0; t + 1 < seen; ++t) {
      issue_dq(t);
      issue_scores(t + 1);
      wgmma_wait<0>();
      m.barriers.empty(t).arrive();
      compute_ds(t + 1);
    }
    issue_dq(seen - 1);
    wgmma_wait<0>();
    m.barriers.empty(seen - 1).arrive();
  }
  for (int t = seen; t < tiles; ++t) {
    m.barriers.full(t).wait(unsigned(t / kStages));
    m.barriers.empty(t).arrive();
  }
  if (row >= count) return;
  warpgroup_fence_operand(dq);
  store_tile_rows(m.resident(0), row, dq, a.scale, a.scale, a.dq.at(token + row, head, kWidth),
                  a.dq.stride, count - row, group);
}

// dk and dv of 128 keys of one key head. With kClusterBlocks > 1, over the heads of cluster rank
// `rank` only, then reduced.
template <int kClusterBlocks, int kWidth>
__device__ __forceinline__ void back_keys(const BackArgs& a, const BackMaps& maps,
                                          const Memory<kWidth>& m, const Tile& tile, int kv_head,
                                          int rank) {
  const auto [group, warp, r, c] = WarpgroupRole();
  const Sequence s = a.sequences.p[tile.sequence];
  const int first = tile.tile * kResidentRows, count = min(kResidentRows, s.q_len - first);
  const int64_t token = int64_t(s.q_begin) + first;
  // Query tiles from the diagonal on, of each head in turn.
  const int tiles = (s.q_len - first + kTile - 1) / kTile;
  const int first_head = a.group * rank / kClusterBlocks,
            turns = tiles * (a.group * (rank + 1) / kClusterBlocks - first_head);

  if (group < 0) {
    warpgroup_reg_dealloc<24>();
    using Source = Source<kWidth>;
    const Source q{&maps.q, a.q}, dout{&maps.dout, a.dout}, k{&maps.k, a.k}, v{&maps.v, a.v};
    load_two_tiles(m.resident(0), m.resident(1), k, v, token, kv_head, count, m.resident_full());
    // A thread loads one word of lse or delta a stage, prefetched while it waits for the stage.
    const int which = int(threadIdx.x) / kTile, j = int(threadIdx.x) % kTile;
    const int stat_stride = which ? a.q_heads : int(a.lse_stride);
    const float* const stats = (which ? a.delta : a.lse) + (token + j) * stat_stride;
    int head = kv_head * a.group + first_head, t = 0;
    const auto stat = [&] {
      return t * kTile + j < s.q_len - first ? stats[int64_t(t * kTile) * stat_stride + head]
                                             : 0.0f;
    };
    float ahead = stat();
    for (int i = 0; i < turns; ++i) {
      if (i >= kStages) m.barriers.empty(i).wait(unsigned(i / kStages - 1));
      store_word(m.stats(i, which) + uint32_t(j) * 4, __float_as_uint(ahead));
      load_two_tiles(m.stage(i, 0), m.stage(i, 1), q, dout, token + t * kTile, head,
                     s.q_len - first - t * kTile, m.barriers.full(i));
      if (++t == tiles) t = 0, ++head;
      if (i + 1 < turns) ahead = stat();
    }
    return;
  }
  warpgroup_reg_alloc<240>();
  const int row = group * kRows, key = row + 16 * warp + r;  // the lane's first
  const float scale = a.scale * kLog2E;
  float dk[kWidth / 2], dv[kWidth / 2], p[32], ds[32];
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) dk[i] = dv[i] = 0;
  const auto issue_scores = [&](int i) {
    m.barriers.full(i).wait(unsigned(i / kStages));
    wgmma_fence();
    product(p, m.resident(0), row, m.stage(i, 0));
    product(ds, m.resident(1), row, m.stage(i, 1));
    wgmma_commit();
  };
  AFragments weights, gradients;
  m.resident_full().wait(0);
  // The first tile of a head holds queries that see no key of the second warpgroup.
  const int unseen = row < count ? row / kTile : tiles;
  for (int i = 0, t = 0; i < turns; ++i, t = t + 1 == tiles ? 0 : t + 1) {
    if (t < unseen) {
      m.barriers.full(i).wait(unsigned(i / kStages));
      m.barriers.empty(i).arrive();
      continue;
    }
    issue_scores(i);
    wgmma_wait<0>();
    warpgroup_fence_operand(p), warpgroup_fence_operand(ds);
    const uint32_t lse = m.stats(i, 0) + 8 * c, delta = m.stats(i, 1) + 8 * c;
    // Rows are keys, columns queries.
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      const float2 shift = load_pair(lse + 32 * n), less = load_pair(delta + 32 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& x = p[4 * n + e];
        x = exp2_fast(fmaf(x, scale, (e % 2 ? shift.y : shift.x) * -kLog2E));
        if (t == unseen && t * kTile + 8 * n + 2 * c + e % 2 < key + 8 * (e / 2)) x = 0;
        ds[4 * n + e] = x * (ds[4 * n + e] - (e % 2 ? less.y : less.x));
      }
    }
    weights.pack(p);
    gradients.pack(ds);
    // No overlap with the next tile here, for lack of registers; the other warpgroup fills the gap.
    wgmma_fence();
    accumulate(dv, weights, m.stage(i, 1));
    accumulate(dk, gradients, m.stage(i, 0));
    wgmma_commit();
    wgmma_wait<0>();
    m.barriers.empty(i).arrive();
  }
  warpgroup_fence_operand(dk), warpgroup_fence_operand(dv);
  if constexpr (kClusterBlocks == 1) {
    if (row >= count) return;
    store_tile_rows(m.resident(0), row, dk, a.scale, a.scale, a.dk.at(token + row, kv_head, kWidth),
                    a.dk.stride, count - row, group);
    store_tile_rows(m.resident(1), row, dv, 1.0f, 1.0f, a.dv.at(token + row, kv_head, kWidth),
                    a.dv.stride, count - row, group);
    return;
  }
  // Both warpgroups have read all tiles: their memory becomes that of the partial sums.
  asm volatile("bar.sync 3, %0;" ::"n"(kConsumers * kWarpgroupThreads) : "memory");
  using Reduction = DsmemReduction<kConsumers, kWidth>;
  const Reduction sums{m.base};
  sums.store(0, dk), sums.store(1, dv);
  cluster_arrive();
  cluster_wait();
  if (row + 16 * warp < count) {
    constexpr int kQuads = Reduction::kQuads / kClusterBlocks, kAtOnce = kQuads < 4 ? kQuads : 4;
    for (int q = rank * kQuads; q < (rank + 1) * kQuads; q += kAtOnce) {
      sums.template reduce_and_write<kClusterBlocks, kAtOnce>(
          0, q, a.scale, a.dk.at(token + key, kv_head, kWidth), a.dk.stride, count - key);
      sums.template reduce_and_write<kClusterBlocks, kAtOnce>(
          1, q, 1.0f, a.dv.at(token + key, kv_head, kWidth), a.dv.stride, count - key);
    }
  }
  // A block may not exit while others read its shared memory.
  cluster_arrive();
  cluster_wait();
}

#endif

// Grid x: kClusterBlocks blocks a key head, then one block a query head, or only one of these
// kinds; y: a tile of 128 rows.
enum class Kind { both, keys, queries };
template <int kWidth, Kind kKind, int kClusterBlocks>
__global__ void __launch_bounds__(kThreads, 1)
    back_kernel(const __grid_constant__ BackArgs a, const __grid_constant__ BackMaps maps) {
#if defined(NIBBLE_HAS_WGMMA)
  pdl_enter();
  extern __shared__ unsigned char shared[];
  __shared__ __align__(8) uint64_t barrier_words[2 * kStages + 1];
  const Tile tile = find_tile(a.sequences, kResidentRows, int(blockIdx.y));
  if (tile.sequence < 0) return;
  const Memory<kWidth> m = prepare<kWidth>(shared, barrier_words);
  const int x = int(blockIdx.x);
  const int key_blocks = kKind == Kind::queries ? 0 : a.q_heads / a.group * kClusterBlocks;
  if (kKind == Kind::keys || (kKind == Kind::both && x < key_blocks)) {
    back_keys<kClusterBlocks>(a, maps, m, tile, x / kClusterBlocks, x % kClusterBlocks);
  } else if (kClusterBlocks == 1 || x - key_blocks < a.q_heads) {
    back_queries(a, maps, m, tile, x - key_blocks);
  }
#endif
}

template <int kWidth, Kind kKind, int kClusterBlocks>
void run(const Context& c, const BackArgs& a, const BackMaps& maps, unsigned tiles) {
  const unsigned queries = unsigned(a.q_heads), keys = queries / unsigned(a.group) * kClusterBlocks;
  // A grid is whole clusters; blocks behind the last head have nothing to do.
  const unsigned query_blocks = (queries + kClusterBlocks - 1) / kClusterBlocks * kClusterBlocks;
  const unsigned blocks =
      (kKind == Kind::queries ? 0 : keys) + (kKind == Kind::keys ? 0 : query_blocks);
  allow_shared(c, back_kernel<kWidth, kKind, kClusterBlocks>);
  launch(c, {dim3(blocks, tiles), dim3(kThreads), kSharedBytes<kWidth>, kClusterBlocks},
         back_kernel<kWidth, kKind, kClusterBlocks>, a, maps);
}
template <int kWidth>
void run(const Context& c, const AttentionBackCall& call, const BackArgs& args,
         const BackMaps& maps) {
  const unsigned tiles = tile_limit(call.tokens(), call.sequences.dim(0), kResidentRows);
  const bool few = call.tokens() <= kResidentRows;
  if (few && args.group > 4) {
    run<kWidth, Kind::both, 8>(c, args, maps, tiles);
  } else if (few && args.group > 2) {
    run<kWidth, Kind::both, 4>(c, args, maps, tiles);
  } else if (few && args.group == 2) {
    run<kWidth, Kind::both, 2>(c, args, maps, tiles);
  } else if (int64_t(tiles) * call.kv_heads() <= 2 * c.sm_count) {
    run<kWidth, Kind::both, 1>(c, args, maps, tiles);
  } else {  // each kind alone fills the GPU
    run<kWidth, Kind::keys, 1>(c, args, maps, tiles);
    run<kWidth, Kind::queries, 1>(c, args, maps, tiles);
  }
}

}  // namespace

bool attention_back_wgmma(const Context& c, const AttentionBackCall& a, const float* delta) {
  if (c.capability != 90 || a.q.dtype != DType::bf16 || a.kv.k.dtype != DType::bf16 ||
      !has_wgmma_kernels(a.width()) || a.lse.dtype != DType::f32 ||
      c.shared_per_block < kSharedBytes<128> + 128 ||
      tile_limit(a.tokens(), a.sequences.dim(0), kResidentRows) > 65535 ||
      !heads_aligned(a.dq, a.dk, a.dv, a.dout, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  const BackArgs args = flash_back_args<bf16>(a, delta);
  BackMaps maps;
  if (!map_heads(maps.q, a.q, kTile) || !map_heads(maps.k, a.kv.k, kTile) ||
      !map_heads(maps.v, a.kv.v, kTile) || !map_heads(maps.dout, a.dout, kTile)) {
    return false;
  }
  a.width() == 64 ? run<64>(c, a, args, maps) : run<128>(c, a, args, maps);
  return true;
}

}  // namespace nibble::cuda

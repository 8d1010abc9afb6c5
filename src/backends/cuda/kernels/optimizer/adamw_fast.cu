// SPDX-License-Identifier: MIT
// AdamW for bf16 masters, bf16 gradients and int8 moments, in a third of the instructions of
// adamw_generic.cuh. Constants are folded, multiply-adds fused, root and reciprocal approximate
// (2^-22), codes by optim/moment_cells.h: results are those of the CPU but for a rounding, here and
// there a step of a code or of bf16 (tests/ops/adamw_close_test.cpp has the bounds). They depend on
// the moment block alone, so runs, chunks and resumed runs agree bit for bit. Blocks with values
// out of range (huge or tiny ones, NaN, the ragged end of a parameter) take the generic path.
//
// Multi-tensor: one launch has up to 23 parameters as one list of tiles of eight moment blocks
// (2,048 elements). Persistent, four blocks of eight warps an SM; a warp has one moment block (256
// elements, eight a lane). Tiles come by bulk copies into two stages (full / empty mbarriers; the
// issuing warp rotates) while the one before is computed. Dynamic tile scheduler: blocks claim four
// tiles at a time from an atomic counter; with static ranges a fifth of the warps had ended early,
// as SMs are not equally fast.
//
// Bytes alone would take 10.5 ms for 4.02 G elements on an H200 (10.7 bytes each at copy speed).
// Measured 12.8-13.6; with a launch for each parameter and loads to registers 15.6. Of the issue
// slots 82 % are busy (690 instructions a moment block), of the ALU pipe 57 %, of the memory 3.3
// TB/s: no bound alone. 6 % fewer instructions, a third stage, claims of eight tiles changed
// nothing.
#include <array>
#include <cmath>
#include <cstring>

#include "backends/cuda/device_functions/bulk_copy.cuh"
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/optimizer/adamw_fast_step.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr unsigned kBlocksPerSm = 4;
constexpr float kLargestFirst = 0x1p60f, kLargestSecond = 0x1p100f;

// A stage: one tile in shared memory.
struct alignas(128) Stage {
  uint4 grad[kAdamwThreads], master[kAdamwThreads];
  uint2 m[kAdamwThreads], v[kAdamwThreads];
  float scale_m[kTileBlocks], scale_v[kTileBlocks];
  static constexpr uint32_t kBytes =
      kAdamwThreads * 2 * (sizeof(uint4) + sizeof(uint2)) + 2 * kTileBlocks * sizeof(float);
};
constexpr uint32_t kStages = 2;
struct Pipeline {
  Stage stage[kStages];
  uint64_t full[kStages], empty[kStages];
};
// A block processes at most kMaxTiles tiles a launch and claims kClaim of them at a time.
constexpr uint32_t kMaxTiles = 1024, kClaim = 4;
struct TileClaims {
  uint32_t tile[kMaxTiles / kClaim + 1];  // first tile of a claim; kNoTile: none

  static constexpr uint32_t kNoTile = 0xffffff00;
  __device__ __forceinline__ uint32_t at(uint32_t index) const {
    return tile[index / kClaim] + index % kClaim;
  }
};
// Moment blocks for the generic path, deferred to the end of the kernel: a call from the main loop
// would cost it registers. One bit per (tile of this block, warp).
struct DeferredBlocks {
  uint32_t word[kMaxTiles * kTileBlocks / 32];
  uint32_t any;

  __device__ __forceinline__ void add(uint32_t index, uint32_t warp) {
    const uint32_t bit = index * kTileBlocks + warp;
    atomicOr(&word[bit / 32], 1u << bit % 32);
    any = 1;
  }
  __device__ __forceinline__ bool has(uint32_t index, uint32_t warp) const {
    const uint32_t bit = index * kTileBlocks + warp;
    return word[bit / 32] >> bit % 32 & 1u;
  }
};

// Producer, one thread: bulk copies of tile `id` of the launch, which belongs to `k` or a later
// task, or to none.
__device__ __forceinline__ void issue_loads(Pipeline& pipeline, uint32_t s, const FastTask* k,
                                            uint32_t id, uint32_t tiles) {
  const uint32_t barrier = shared_address(&pipeline.full[s]);
  while (id < tiles && id >= k->tiles_end) ++k;
  if (id >= tiles || id - k->staged >= k->staged_count) {
    mbarrier_arrive(barrier);
    return;
  }
  const uint32_t tile = id - k->first_tile;
  Stage& to = pipeline.stage[s];
  mbarrier_arrive_expect_tx(barrier, Stage::kBytes);
  const auto load = [&](auto& part, const void* from) {
    bulk_load(shared_address(&part), static_cast<const std::byte*>(from) + tile * sizeof(part),
              sizeof(part), barrier);
  };
  load(to.grad, k->grad);
  load(to.master, k->master);
  load(to.m, k->m);
  load(to.v, k->v);
  load(to.scale_m, k->m_scales);
  load(to.scale_v, k->v_scales);
}

__device__ __forceinline__ FastInput load_staged(const Stage& s, uint32_t warp) {
  return {s.grad[threadIdx.x], s.master[threadIdx.x], s.m[threadIdx.x],
          s.v[threadIdx.x],    s.scale_m[warp],       s.scale_v[warp]};
}
__device__ __forceinline__ FastInput load_direct(const FastTask& k, uint32_t block) {
  const uint32_t at = block * kLanes + threadIdx.x % kLanes;
  return {static_cast<const uint4*>(k.grad)[at],
          static_cast<const uint4*>(k.master)[at],
          reinterpret_cast<const uint2*>(k.m)[at],
          reinterpret_cast<const uint2*>(k.v)[at],
          k.m_scales[block],
          k.v_scales[block]};
}

// Not inlined: ptxas orders such functions by name, and this one behind quantize_by_rule makes the
// kernel 128 bytes longer.
__device__ __noinline__ void generic_path(const FastTerms& terms_of_all, const FastTask& k,
                                          uint32_t block) {
  AdamwTerms<float> terms = terms_of_all.terms;
  terms.lr = k.lr, terms.decay = k.decay;
  MomentView m(MomentFormat::f32, k.m, 0), v(MomentFormat::f32, k.v, 0);
  m.scales = k.m_scales, v.scales = k.v_scales;
  const AdamwArgs a{k.master,
                    const_cast<void*>(k.grad),
                    m,
                    v,
                    MomentFormat::int8,
                    0,
                    k.end,
                    terms,
                    terms_of_all.seed,
                    k.stream,
                    k.packed,
                    int64_t(k.row_blocks) * kNvfp4Block,
                    k.row_offset,
                    nullptr,
                    ScaleRule::four_over_six,
                    false,
                    true,
                    MasterRounding::stochastic,
                    DType::bf16,
                    DType::bf16};
  generic_step<bf16, bf16, true>(a, kTables,
                                 (int64_t(block) * kLanes + threadIdx.x % kLanes) * kPerLane);
}

// Iterates over the tiles that this block claimed.
struct TileIterator {
  const TileClaims& claims;
  const FastTask* k;
  uint32_t id, index;

  __device__ __forceinline__ TileIterator(const TileClaims& all, const FastTask* tasks)
      : claims(all), k(tasks), index(0) {}
  // Finds the current tile and its task; false: no more tiles.
  __device__ __forceinline__ bool find(uint32_t tiles) {
    id = claims.at(index);
    if (id >= tiles) return false;
    while (id >= k->tiles_end) ++k;
    return true;
  }
  __device__ __forceinline__ bool staged() const { return id - k->staged < k->staged_count; }
  __device__ __forceinline__ uint32_t block(uint32_t warp) const {
    return (id - k->first_tile) * kTileBlocks + warp;
  }
};

template <bool kPacked, bool kDecay>
__global__ void __launch_bounds__(kAdamwThreads, kBlocksPerSm)
    adamw_fast_kernel(const __grid_constant__ FastBatch b) {
  __shared__ __align__(1024) FastTables t;
  __shared__ Pipeline pipeline;
  __shared__ FastTask tasks[kFastTasks];
  __shared__ TileClaims claims;
  __shared__ DeferredBlocks deferred;
  const auto copy = [](void* to, const void* from, uint32_t bytes) {
    for (uint32_t i = threadIdx.x; i < bytes / 16; i += kAdamwThreads) {
      static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
    }
  };
  copy(&t, &kFastTables, sizeof t);
  copy(tasks, b.task, sizeof tasks);
  static_assert(kMaxTiles / kClaim == kAdamwThreads);
  deferred.word[threadIdx.x] = deferred.any = 0;
  const uint32_t own =
      blockIdx.x + threadIdx.x * gridDim.x;  // static assignment, without bulk copies
  claims.tile[threadIdx.x] =
      threadIdx.x == 0 || (!kHasBulkCopy && own < b.tiles) ? own * kClaim : TileClaims::kNoTile;
  claims.tile[kMaxTiles / kClaim] = TileClaims::kNoTile;
  if (kHasBulkCopy && threadIdx.x == 0) {
    for (uint32_t s = 0; s < kStages; ++s) {
      mbarrier_init(shared_address(&pipeline.full[s]), 1);
      mbarrier_init(shared_address(&pipeline.empty[s]), kTileBlocks);
    }
    mbarrier_init_fence();
  }
  pdl_wait();
  __syncthreads();
  const uint32_t lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  if (kHasBulkCopy) {
    if (threadIdx.x == 0) {
#pragma unroll 1
      for (uint32_t s = 0; s < kStages; ++s) issue_loads(pipeline, s, tasks, claims.at(s), b.tiles);
    }
    for (TileIterator w(claims, tasks);; ++w.index) {
      // Refills the stage released in the previous iteration; the warps take turns as producer.
      const uint32_t s = w.index % kStages, bit = w.index / kStages % 2;
      if (w.index > 0 && threadIdx.x == w.index % kTileBlocks * kLanes) {
        const uint32_t last = w.index - 1;
        mbarrier_wait_parity(shared_address(&pipeline.empty[last % kStages]), last / kStages % 2);
        issue_loads(pipeline, last % kStages, w.k, claims.at(last + kStages), b.tiles);
      }
      __syncwarp();
      mbarrier_wait_parity(shared_address(&pipeline.full[s]), bit);
      if (!w.find(b.tiles)) break;
      const FastInput x = load_staged(pipeline.stage[s], warp);
      __syncwarp();
      if (lane == 0) mbarrier_arrive(shared_address(&pipeline.empty[s]));
      if (w.staged() && !fast_step<kPacked, kDecay>(b.terms, *w.k, t, w.block(warp), x) &&
          lane == 0) {
        deferred.add(w.index, warp);
      }
      // Claimed before this warp releases the next stage, hence before a tile of the claim is
      // needed.
      if (threadIdx.x == w.index / kClaim % kTileBlocks * kLanes && w.index % kClaim == 0 &&
          w.index + kClaim < kMaxTiles) {
        claims.tile[w.index / kClaim + 1] = (gridDim.x + atomicAdd(b.claimed, 1u)) * kClaim;
      }
    }
  }
  // Ragged ends of parameters, and what cannot be copied in bulk.
  if (!kHasBulkCopy || !b.all_staged) {
    for (TileIterator w(claims, tasks); w.find(b.tiles); ++w.index) {
      const uint32_t block = w.block(warp);
      if ((kHasBulkCopy && w.staged()) || block < w.k->first_block ||
          int64_t(block) * kMomentBlock >= w.k->end) {
        continue;
      }
      if (block >= w.k->whole_end ||
          !fast_step<kPacked, kDecay>(b.terms, *w.k, t, block, load_direct(*w.k, block))) {
        if (lane == 0) deferred.add(w.index, warp);
      }
    }
  }
  __syncwarp();
  if (deferred.any) {
    for (TileIterator w(claims, tasks); w.find(b.tiles); ++w.index) {
      if (deferred.has(w.index, warp)) generic_path(b.terms, *w.k, w.block(warp));
    }
  }
  if (!kHasBulkCopy) return;
  __syncthreads();  // no more claims: the last block resets the counters
  if (threadIdx.x == 0 && atomicAdd(b.claimed + 1, 1u) == gridDim.x - 1) {
    b.claimed[0] = b.claimed[1] = 0;
  }
}

// Whether this kernel applies to a step with these terms, and its folded constants.
bool fast_terms(const AdamwArgs& a, FastTerms* s, FastTask* k) {
  const AdamwTerms<float>& t = a.terms;
  const auto within = [](double x, double low, double high) { return x >= low && x <= high; };
  // Bounds that keep the scaled moments in range, and what is flushed to 0 far below eps.
  if (!within(t.eps, 0x1p-36, 1) || !within(t.beta1, 0, 1) || !within(t.rest1, 0x1p-20, 1) ||
      !within(t.beta2, 0, 1) || !within(t.rest2, 0x1p-20, 1) ||
      !within(t.inverse_bias1, 1, 0x1p20) || !within(t.inverse_bias2, 1, 0x1p20) ||
      !within(t.lr, 0x1p-60, 0x1p10) || !within(t.decay, 0, 0x1p10) ||
      !within(t.grad_scale, 0x1p-30, 0x1p10) || a.end / kPerLane >= int64_t(1) << 31) {
    return false;
  }
  const double first = double(t.rest1) * double(t.grad_scale);
  const double second = double(t.rest2) * double(t.grad_scale) * double(t.grad_scale);
  const double per_step = first * double(t.inverse_bias1) * double(t.lr);
  s->first_out = float(first), s->second_out = float(second);
  s->first_in = float(double(t.beta1) / first), s->second_in = float(double(t.beta2) / second);
  s->first = BitRange(float(double(kMomentScaleFloor) / first), kLargestFirst);
  s->second = BitRange(float(double(kMomentScaleFloor) / second), kLargestSecond);
  s->keys = PhiloxKeys(a.seed);
  s->terms = t, s->terms.lr = s->terms.decay = 0;
  s->seed = a.seed;

  k->master = a.master, k->grad = a.grad;
  k->m = a.m.codes, k->v = a.v.codes, k->m_scales = a.m.scales, k->v_scales = a.v.scales;
  k->packed = a.packed;
  k->root = float(std::sqrt(second * double(t.inverse_bias2)) / per_step);
  k->eps = float(double(t.eps) / per_step);
  k->shrink = float(double(t.lr) * double(t.decay));
  k->lr = t.lr, k->decay = t.decay;
  k->philox = PhiloxStream(s->keys, a.stream);
  k->stream = a.stream;
  k->end = a.end;
  k->first_block = uint32_t(a.begin / kMomentBlock);
  k->whole_end = uint32_t(a.end / kMomentBlock);
  const bool staged = aligned16(a.m.scales) && aligned16(a.v.scales);
  k->staged = (k->first_block + kTileBlocks - 1) / kTileBlocks;
  k->staged_count = staged ? std::max(k->whole_end / kTileBlocks, k->staged) - k->staged : 0;
  if (!a.packed) return true;
  const int64_t blocks = a.in / kNvfp4Block;
  if (a.rule != ScaleRule::four_over_six || a.row_scale || a.in % kNvfp4Block != 0 || blocks < 2 ||
      blocks >= 1 << 20 || a.row_offset >= 1 << 30 ||
      packed_size(a.row_offset + (a.end + a.in - 1) / a.in, a.in) >= uint64_t(1) << 32) {
    return false;
  }
  k->row_blocks = uint32_t(blocks), k->units = uint32_t(units_across(a.in));
  k->row_offset = uint32_t(a.row_offset);
  int bits = 1;  // 2^(bits - 1) < blocks <= 2^bits
  while (int64_t(1) << bits < blocks) ++bits;
  k->magic = uint32_t((uint64_t(1) << (31 + bits)) / uint64_t(blocks) + 1);
  k->shift = uint32_t(bits - 1);
  return true;
}

// Batches tasks of one kernel variant: full batches are launched at once, the last one at the end.
class Launches {
 public:
  Launches(const Context& c, unsigned* claimed, void (*kernel)(FastBatch))
      : c_(c),
        kernel_(kernel),
        blocks_(uint32_t(c.sm_count) * kBlocksPerSm),
        most_tiles_(blocks_ * (kMaxTiles / 2)) {
    b_.claimed = claimed;
    b_.all_staged = true;
  }
  void add(const FastTerms& terms, FastTask k) {
    // Terms of the launch have no padding, so bytes tell whether they are the same.
    if (b_.tasks > 0 && std::memcmp(&terms, &b_.terms, sizeof terms) != 0) flush();
    b_.terms = terms;
    const uint32_t end = blocks_for(k.end, kMomentBlock * int64_t(kTileBlocks));
    for (uint32_t tile = k.first_block / kTileBlocks; tile < end;) {
      if (b_.tasks == kFastTasks || b_.tiles == most_tiles_) flush();
      const uint32_t count = std::min(end - tile, most_tiles_ - b_.tiles);
      add_tiles(k, tile, count);
      tile += count;
    }
  }
  void flush() {
    launch(c_, {dim3(std::min(blocks_for(b_.tiles, kClaim), blocks_)), dim3(kAdamwThreads)},
           kernel_, b_);
    b_.tasks = b_.tiles = 0;
    b_.all_staged = true;
  }

 private:
  void add_tiles(FastTask k, uint32_t tile, uint32_t count) {
    const uint32_t begin = std::max(k.staged, tile);
    const uint32_t end = std::min(k.staged + k.staged_count, tile + count);
    k.first_tile = b_.tiles - tile;
    k.staged = begin + k.first_tile, k.staged_count = end > begin ? end - begin : 0;
    b_.tiles += count;
    k.tiles_end = b_.tiles;
    b_.all_staged = b_.all_staged && k.staged_count == count;
    b_.task[b_.tasks++] = k;
  }

  const Context& c_;
  void (*kernel_)(FastBatch);
  const uint32_t blocks_, most_tiles_;
  FastBatch b_{};
};
}  // namespace

void adamw_fast(const Context& c, unsigned* counters, std::vector<AdamwArgs>& all) {
  Launches kinds[2][2] = {{{c, counters, adamw_fast_kernel<false, false>},
                           {c, counters, adamw_fast_kernel<false, true>}},
                          {{c, counters, adamw_fast_kernel<true, false>},
                           {c, counters, adamw_fast_kernel<true, true>}}};
  std::erase_if(all, [&](const AdamwArgs& a) {
    FastTerms terms{};
    FastTask task{};
    if (a.format != MomentFormat::int8 || a.type != DType::bf16 || a.grad_type != DType::bf16 ||
        !a.aligned || a.from_quantised || a.rounding != MasterRounding::stochastic ||
        !fast_terms(a, &terms, &task)) {
      return false;
    }
    kinds[a.packed != nullptr][task.shrink != 0].add(terms, task);
    return true;
  });
  for (auto& row : kinds) {
    for (Launches& l : row) l.flush();
  }
}

}  // namespace nibble::cuda

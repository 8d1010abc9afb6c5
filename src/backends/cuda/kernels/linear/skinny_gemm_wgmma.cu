// SPDX-License-Identifier: MIT
// Skinny GEMM on packed NVFP4 weights with wgmma: out [n, rows] = x W^T for 2 to 64 tokens (padded
// to N = 8, 16, 32 or 64), bf16 or f16, compute capability 9.0; with SwiGLU fused for gate_up.
// First choice of linear() for these sizes.
//
// A: weights, decoded to exact 16-bit fragments in registers (RS form); B: tokens in shared memory.
// Split-K over a cluster: each block keeps its K slice of the tokens and walks over the cluster's
// strips in tiles of four strips (with SwiGLU two of gate and two of up), one tile a warpgroup, up
// to five warpgroups a block. Each warp is producer and consumer of its own ring of bulk copies
// (whole units), which runs across tiles; one copy is issued before pdl_wait, the others while the
// token loads are in flight (all of them before it: 13,540 tok/s with 32 sequences of 512 keys,
// none before gate_up 13,830, one 14,000). Slices are reduced by skinny_gemm_reduce.cuh;
// skinny_gemm_plan.h chooses the plan.
//
// Bound by issue slots and by prologue and epilogue of a launch. With 32 tokens a unit (16 rows x
// 128 columns) takes a scheduler 245 clocks in a loop of its own, where HBM needs 256; of these the
// wgmmas alone take 128 and hardly overlap with decoding, with any number of warpgroups and with
// two sets of accumulators (mma.sync: 335 in all). A unit is 154 instructions, 112 of them
// decoding, a copy 45 more, the end of a tile 300. It was 168, with SwiGLU 199, and 70 for a copy,
// before warp-uniform values were kept in uniform registers. The head still takes 360 clocks a
// unit. Copies of one unit, for more even requests, cost 3 %; fewer registers, so that a norm
// before fits beside this kernel, tokens read in another order by each cluster, and a copy issued
// after the next unit is loaded brought nothing.
//
// On an H200, 32 tokens, each product in a chain of its own launches: qkv 7.3 us (8.2 before that),
// o 6.2 (6.1), gate_up with SwiGLU 14.1 (15.4), down 9.6 (10.0), head 73.6 (84.8); with 8 tokens
// 5.6 (7.2), 4.9 (5.3), 11.3 (13.2), 8.0 (8.8), 57 (67). 32 sequences of 512 keys: 13,590 -> 14,160
// to 14,350 tok/s.
#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/packed_unit.cuh"
#include "backends/cuda/kernels/linear/skinny_gemm_load.cuh"
#include "backends/cuda/kernels/linear/skinny_gemm_plan.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

using Job = ClusterGemmArgs;

#if defined(NIBBLE_HAS_WGMMA)

// decode_as with one instruction less: a multiplication moves magnitude and sign of the third pair
// from bits 0 and 14 to 6 and 15; its other partial products are masked off.
template <class T>
__device__ __forceinline__ void decode_word(uint32_t w, uint32_t (&pair)[4]) {
  if constexpr (std::is_same_v<T, bf16>) {
    constexpr uint32_t kMagnitude = 0x01c001c0u, kSign = 0x80008000u;
    pair[0] = w & (kMagnitude | kSign);
    pair[1] = (w << 3) & (kMagnitude | kSign);
    pair[2] = ((w & 0x40074007u) * 66u) & (kMagnitude | kSign);
    pair[3] = ((w >> 3) & kMagnitude) | ((w << 2) & kSign);
    return;
  }
  decode_as<T>(w, pair);
}

// The scales of two blocks of a row times kPreScale<T>, from two E4M3 bytes. As bf16, a byte
// shifted by four is its value times 2^-120, subnormals included.
template <class T>
__device__ __forceinline__ uint32_t two_factors(uint32_t scales, bool high) {
  if constexpr (std::is_same_v<T, f16>) {
    const float2 s = e4m3x2_to_float2(high ? scales >> 16 : scales);
    const __half2 h = __floats2half2_rn(s.x * kPreScale<T>, s.y * kPreScale<T>);
    return *reinterpret_cast<const uint32_t*>(&h);
  } else {
    const uint32_t tiny = __byte_perm(scales, 0, high ? 0x4342 : 0x4140) << 4;
    static_assert(kPreScale<T> == 0x1p62f);
    return multiply_pair<T>(multiply_pair<T>(tiny, 0x7f007f00u), 0x5b005b00u);  // 2^127, 2^55
  }
}
template <class T>
__device__ __forceinline__ uint32_t factor_pair(uint32_t two, int which) {
  if constexpr (std::is_same_v<T, f16>) {
    const __half2 h = *reinterpret_cast<const __half2*>(&two);
    const __half2 r = which ? __high2half2(h) : __low2half2(h);
    return *reinterpret_cast<const uint32_t*>(&r);
  } else {
    const __nv_bfloat162 h = *reinterpret_cast<const __nv_bfloat162*>(&two);
    const __nv_bfloat162 r = which ? __high2bfloat162(h) : __low2bfloat162(h);
    return *reinterpret_cast<const uint32_t*>(&r);
  }
}

// One unit times all tokens; x: the low half of its smem descriptor. Leaves a wgmma group in
// flight: the caller waits before it reads acc. refill() is called when u may be overwritten.
template <class T, int kTokens, class Refill>
__device__ __forceinline__ void multiply(const Unit& u, uint32_t x, float (&acc)[kTokens / 2],
                                         Refill&& refill) {
  // In a uniform register, where adding to it takes one instruction, not five.
  const uint64_t tokens = smem_descriptor(0, 0) | __reduce_or_sync(0xffffffffu, x);
  const uint32_t low = two_factors<T>(u.scales, false), high = two_factors<T>(u.scales, true);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    uint32_t a[2][4], b[2][4];
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      decode_word<T>(word_of(u.a0, 2 * h + w), a[w]);
      decode_word<T>(word_of(u.a1, 2 * h + w), b[w]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[w][i] = multiply_pair<T>(a[w][i], factor_pair<T>(low, h));
        b[w][i] = multiply_pair<T>(b[w][i], factor_pair<T>(high, h));
      }
    }
    wgmma_fence();
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const uint64_t piece = tokens + uint64_t((2 * h + w) * piece_bytes(kTokens) / 16);
      wgmma<T, kTokens>(acc, a[w][0], b[w][0], a[w][1], b[w][1], piece, 1);
      wgmma<T, kTokens>(acc, a[w][2], b[w][2], a[w][3], b[w][3],
                        piece + 2 * half_bytes(kTokens) / 16, 1);
    }
    wgmma_commit();
    if (h == 1) refill();
    wgmma_wait<1>();
  }
}

// For the most warpgroups. Where fewer are launched, registers are left for the small kernels
// before and after.
constexpr int kLaunchThreads = SplitKPlanner::kMaxGroups * kWarpgroupThreads;

template <class T, int kTokens, bool kSwiglu>
__global__ void __launch_bounds__(kLaunchThreads, 1) skinny_gemm_wgmma_kernel(Job j) {
  extern __shared__ __align__(128) std::byte xs[];
  constexpr int kStrips = kSwiglu ? kTileStrips / 2 : kTileStrips;
  const int t = int(threadIdx.x), lane = t % 32;
  // Broadcast by shuffle, so that the compiler sees branches around wgmma as warp-uniform.
  const int all_warps = __shfl_sync(0xffffffffu, t / 32, 0);
  const int group = all_warps / 4, warp = all_warps % 4;
  const int slice = int(blockIdx.x) & ((1 << j.slices_shift) - 1);
  const int cluster = int(blockIdx.x) >> j.slices_shift;
  const int begin = j.units_of_slice.begin(slice);
  const int count = j.units_of_slice.begin(slice + 1) - begin;
  const int strip_end = j.strips_of_cluster.begin(cluster + 1);
  // First strip of this warpgroup, and of this warp (with SwiGLU the gate's).
  const int group_strip = j.strips_of_cluster.begin(cluster) + group * kStrips;
  const int first_strip = group_strip + (kSwiglu ? warp % 2 : warp), step = j.groups * kStrips;

  // This warp's ring of weight stages.
  const uint32_t shared = shared_address(xs), barriers = shared + uint32_t(j.barriers_at);
  const int stage_bytes = j.stage_units * int(kUnitBytes);
  const uint32_t ring = shared + uint32_t(j.ring_at + all_warps * j.stages * stage_bytes);
  const uint32_t ring_full = barriers + uint32_t(all_warps * j.stages * 8);
  int copy_strip = first_strip, copy_left = count;
  const uint8_t* from =
      j.packed +
      (int64_t(first_strip + (kSwiglu ? warp / 2 * j.strips : 0)) * j.units + begin) * kUnitBytes;
  int64_t skip = (int64_t(step) * j.units - count) * kUnitBytes;
  // Producer: the next copy, into a stage that has been consumed; by whole warps.
  const auto issue_copy = [&](int stage) {
    if (copy_strip >= strip_end) return;
    const uint32_t bytes = uint32_t(min(j.stage_units, copy_left) * int(kUnitBytes));
    if (elect_one()) {
      copy_units(ring + uint32_t(stage * stage_bytes), from, bytes,
                 ring_full + uint32_t(8 * stage));
    }
    from += bytes;
    copy_left -= j.stage_units;
    if (copy_left <= 0) {
      from += skip;
      copy_strip += step, copy_left = count;
    }
  };
  if (lane < j.stages) Mbarrier{ring_full + uint32_t(8 * lane)}.init(1);
  fence_proxy_async();
  __syncwarp();
  // Weights may be prefetched before pdl_wait; tokens may not. Only one copy, as loads of the
  // preceding kernel queue behind it.
  issue_copy(0);
  ActivationLoader<T, kTokens> tokens(shared, j, begin, count);
  const uint32_t group_barriers =
      barriers + uint32_t(4 * j.groups * j.stages * 8 + group * 2 * j.slots * 8);
  const ClusterReduction<T, kTokens, kSwiglu> reduction{
      j,
      slice,
      group,
      t % kWarpgroupThreads,
      shared + uint32_t(j.slots_at + group * j.slots * j.slot_bytes),
      group_barriers,
      group_barriers + uint32_t(8 * j.slots)};
  if (j.slices_shift > 0) {
    if (reduction.thread < j.slots) {
      Mbarrier{reduction.full + uint32_t(8 * reduction.thread)}.init(1);
      Mbarrier{reduction.empty + uint32_t(8 * reduction.thread)}.init(unsigned(j.owners));
      mbarrier_init_fence();
      if (slice < j.owners && group_strip + reduction.thread * step < strip_end) {
        reduction.expect_partials(reduction.thread);
      }
    }
    __syncwarp();
    // Barriers are initialised and fenced: peers may send after cluster_wait.
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  pdl_enter();
  const auto issue_rest = [&] {
#pragma unroll 1
    for (int i = 1; i < j.stages; ++i) issue_copy(i);
  };
  if (j.whole_units) {
    tokens.read(issue_rest);
  } else {
    issue_rest();
    if (j.aligned) {
      load_x_ragged<T, kTokens>(shared, j, begin, count);
    } else {
      load_x_one_by_one<T, kTokens>(shared, j, begin, count);
    }
  }
  fence_proxy_async();
  __syncthreads();
  if (j.slices_shift > 0) cluster_wait();

  // Consumer: current stage and parity, and the address in it.
  int stage = 0, phase = 0;
  uint32_t at = ring + uint32_t(16 * lane);
  const uint32_t scales_at = uint32_t(kUnitCodeBytes) - uint32_t(12 * lane);
  Unit u;
  u.clear();
  const auto load = [&] {
    u.a0 = load_chunk(at);
    u.a1 = load_chunk(at + 512);
    u.scales = load_word(at + scales_at);
  };
  const auto next_stage = [&](bool there_is) {
    __syncwarp();
    issue_copy(stage);
    if (++stage == j.stages) stage = 0, phase ^= 1;
    if (!there_is) return;
    mbarrier_wait_by_warp(ring_full + uint32_t(8 * stage), phase);
    at = ring + uint32_t(stage * stage_bytes + 16 * lane);
    load();
  };
  if (first_strip < strip_end) {
    mbarrier_wait_by_warp(ring_full, 0);
    load();
  }
  const uint32_t x0 = uint32_t(smem_descriptor(shared, half_bytes(kTokens)));
  float acc[kTokens / 2];
  // Warps whose strip is behind the end multiply garbage that is never written.
  int n = 0, strip = first_strip, tile_strip = group_strip;
  for (; tile_strip < strip_end; tile_strip += step, strip += step, ++n) {
    const bool mine = strip < strip_end, more = strip + step < strip_end;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) acc[i] = 0;
    uint32_t x = x0;
    constexpr uint32_t kStep = unit_bytes(kTokens) / 16;
#pragma unroll 1
    for (int left = count; left > 0;) {
      const int units = min(j.stage_units, left);
      left -= units;
#pragma unroll 1
      for (int i = 1; i < units; ++i, x += kStep) {
        multiply<T, kTokens>(u, x, acc, [&] {
          at += uint32_t(kUnitBytes);
          if (mine) load();
        });
      }
      multiply<T, kTokens>(u, x, acc, [&] {
        if (mine) next_stage(left > 0 || more);
      });
      x += kStep;
    }
    wgmma_wait<0>();
    warpgroup_fence_operand(acc);
    reduction.send_partials(n, acc);
    if (n > 0) {
      reduction.reduce_and_write(n - 1, strip - step, strip_end,
                                 tile_strip + (j.slots - 1) * step < strip_end);
    }
  }
  if (n > 0) reduction.reduce_and_write(n - 1, strip - step, strip_end, false);
}
#else
template <class T, int kTokens, bool kSwiglu>
__global__ void skinny_gemm_wgmma_kernel(Job) {}
#endif

int tokens_for(int64_t n) { return n <= 8 ? 8 : n <= 16 ? 16 : n <= 32 ? 32 : 64; }

// Clusters of each size that are resident at once, with one block an SM.
template <class... Params>
const SplitKPlanner::Clusters& resident_clusters(const Context& c, void (*kernel)(Params...)) {
  allow_shared(c, kernel);
  SplitKPlanner::Clusters& most = c.limits_of(reinterpret_cast<const void*>(kernel)).clusters;
  if (most[1] > 0) return most;
  for (unsigned slices = 2; slices <= KernelLimits::kMaxCluster; slices *= 2) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(slices * unsigned(c.sm_count));
    config.blockDim = dim3(SplitKPlanner::kMaxGroups * kWarpgroupThreads);
    config.dynamicSmemBytes = c.shared_per_block;  // no static part
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {slices, 1, 1};
    config.attrs = &attribute, config.numAttrs = 1;
    NIBBLE_CUDA(cudaOccupancyMaxActiveClusters(&most[slices], kernel, &config));
    most[slices] = std::min(most[slices], c.sm_count / int(slices));
  }
  most[1] = c.sm_count;
  return most;
}

template <class T, int kTokens, bool kSwiglu>
void launch_tokens(const Context& c, Job j) {
  const auto kernel = skinny_gemm_wgmma_kernel<T, kTokens, kSwiglu>;
  const SplitKPlan plan =
      SplitKPlanner(kTokens, j.units, c.shared_per_block)
          .plan(kSwiglu ? 2 * j.strips : j.strips, kSwiglu, resident_clusters(c, kernel));
  if (plan.slices == 0)
    throw_internal("no way to cut a product of {} x {} x {}", j.n, j.rows, j.in);
  while (1 << j.slices_shift < plan.slices) ++j.slices_shift;
  j.groups = plan.groups, j.stage_units = plan.stage_units, j.stages = plan.stages,
  j.slots = plan.slots;
  j.units_of_slice = EvenSplit(j.units, plan.slices);
  j.strips_of_cluster = EvenSplit(j.strips, plan.clusters);
  j.owners = owners_of(kTokens, plan.slices);
  while (1 << j.n8_shift < n8_tiles_of_owner(kTokens, plan.slices)) ++j.n8_shift;
  j.slot_bytes = slot_bytes(kTokens, plan.slices);
  j.ring_at = (j.units + plan.slices - 1) / plan.slices * unit_bytes(kTokens);
  j.slots_at = j.ring_at + j.groups * 4 * j.stages * j.stage_units * int(kUnitBytes);
  j.barriers_at = j.slots_at + j.groups * j.slots * j.slot_bytes;
  const size_t shared = fixed_bytes(kTokens, j.units, plan.slices, j.groups, j.slots) +
                        ring_bytes(j.groups, j.stage_units, j.stages);
  launch(c,
         {dim3(unsigned(plan.clusters * plan.slices)),
          dim3(unsigned(plan.groups * kWarpgroupThreads)), shared, unsigned(plan.slices)},
         kernel, j);
}

bool aligned(const Tensor& t, uintptr_t bytes, int64_t elements) {
  return !t || (reinterpret_cast<uintptr_t>(t.data) % bytes == 0 && t.row_stride % elements == 0);
}

template <bool kSwiglu>
void run(const Context& c, Tensor out, Tensor act, Tensor x, const LinearWeight& w) {
  Job j;
  fill_args(j, out, act, x, w);
  j.whole_units = j.aligned && j.in % int(kUnitCols) == 0;
  j.paired_stores = aligned(out, 4, 2) && (!kSwiglu || aligned(act, 4, 2));
  const auto go = [&](auto t) {
    using T = decltype(t);
    switch (tokens_for(j.n)) {
      case 8: return launch_tokens<T, 8, kSwiglu>(c, j);
      case 16: return launch_tokens<T, 16, kSwiglu>(c, j);
      case 32: return launch_tokens<T, 32, kSwiglu>(c, j);
      default: return launch_tokens<T, 64, kSwiglu>(c, j);
    }
  };
  if (x.dtype == DType::bf16) {
    go(bf16{});
  } else if constexpr (!kSwiglu) {  // f16 is rare: not worth compiling the fused kernel for
    go(f16{});
  }
}

}  // namespace

bool skinny_gemm_wgmma_fits(const Context& c, int64_t n, const LinearWeight& w) {
  if (c.capability != 90 || n > kSkinnyTokens || w.out >= (int64_t(1) << 28)) return false;
  return SplitKPlanner(tokens_for(n), int(units_across(w.in)), c.shared_per_block).fits();
}

void skinny_gemm_wgmma(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  run<false>(c, out, Tensor{}, x, w);
}

void skinny_gemm_wgmma_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x,
                              const LinearWeight& w) {
  run<true>(c, gate_up, act, x, w);
}

}  // namespace nibble::cuda

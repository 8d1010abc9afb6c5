// SPDX-License-Identifier: MIT
// Decode in one launch: one token of one sequence through all layers and the head (logits [vocab]
// from x [width]), NVFP4 weights, bf16 activations, heads of 64 or 128. A persistent cooperative
// kernel, one block of 12 warps an SM, in clusters of 4, 2 or 1 (what leaves the busiest block the
// fewest units). Chosen for a decode step of one sequence on compute capability 9.0
// (docs/adr/0012); anything else runs op by op.
//
// A layer has five phases: qkv GEMV, attention, attn_out GEMV, gate_up GEMV with SwiGLU, down GEMV.
// There is no grid barrier between them: activations are exchanged as words that tell by their
// value whether they are written (sentinel_words.cuh, flagged_words.cuh), and a block spins for
// those it needs. Recomputed by every block instead of exchanged: RMSNorms and the residual
// (token_residual.cuh), bias or QK-norm and RoPE (token_attention.cuh). Who multiplies what:
// token_plan.cuh. Weights stream through a ring in shared memory across phases (weight_ring.cuh).
//
// One buffer of attention partials serves all layers: who reads some publishes columns of
// attention's output made of them, every row of attn_out needs those, every block needs all rows
// before the next layer, and partials are overwritten in the next layer at the earliest. So a block
// need not have a part of every product; a small model has fewer strips than there are SMs. The
// same holds for the sums that a strip's owner receives from its cluster.
//
// The order of all sums is that of the single-op kernels, so results agree with them bit for bit
// (gemv.cu, norm.cu, heads.cu, attention_decode.cu).
//
// Widths: multiples of 128 with heads of 128, of 16 with heads of 64 (the last unit of a row is
// then part zeros, in the weights and in shared memory).
//
// What bounds it, on an H200 with the shape of Qwen3-4B at 512 tokens, in clocks a layer of about
// 49,500: the units of a block, 422 where an even division were 373, at 53 each (23,000; HBM alone
// 21,000, the integer pipe 14,000); attention 11,000, most of it three exchanges; the norms 4,500
// each, half of it waiting for words; between gate_up and down 2,700. A poll takes 2,000 clocks
// longer while weight copies queue (hence `defer_refill`). 971 tokens a second.
#pragma once
#include "backends/cuda/decode/token_attention.cuh"
#include "backends/cuda/decode/token_prologue.cuh"
#include "backends/cuda/decode/token_residual.cuh"
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {

template <class K, bool kWide, int D, bool kBias>
__global__ void __launch_bounds__(kTokenThreads, 1)
    token_kernel(const __grid_constant__ TokenArgs a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ PhaseSummary summaries[kPhases];
  const int t = int(threadIdx.x), lane = t % 32, warp = t / 32;
  const StartBarrier blocks(a);
  build_tables(a, shared, summaries);
  uint4* const zeros = reinterpret_cast<uint4*>(shared + a.memory.zeros);
  if (t < 2) zeros[t] = make_uint4(0, 0, 0, 0);
  WeightRing ring(a, shared);
  mbarrier_init_fence();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  cluster_arrive();
  const auto tasks_of = [&](int phase) {
    return (summaries[phase].tasks - warp + kTokenWarps - 1) / kTokenWarps;
  };
  const int of_layer = tasks_of(kQkv) + tasks_of(kAttnOut) + tasks_of(kGateUp) + tasks_of(kFfnDown);
  ring.begin(of_layer, of_layer + tasks_of(kLogits));
  uint32_t task = ring.tasks;

  bf16* const x_full = reinterpret_cast<bf16*>(shared + a.memory.x_full);
  bf16* const x_slice = reinterpret_cast<bf16*>(shared + a.memory.x_slice);
  const TokenLayer* const layers = reinterpret_cast<const TokenLayer*>(shared + a.memory.layers);
  // Before this wait nothing is read that the preceding kernel writes, and the words cleared above
  // are not its memory: it is rope_table (one_launch.cu), which uses no scratch memory. An op that
  // does would have to be waited for first.
  pdl_wait();
  Residual<kWide> residual(a.x, a.width);
  if constexpr (D == 64) zero_ragged_columns(x_full, a.width, t);
  ColumnLoader<D == 64> columns_in(x_slice);
  using Attention = TokenAttention<K, D, kBias>;
  __shared__ typename Attention::Place place;
  const Attention attention(a, place, shared + a.memory.attention);
  residual.prefetch_weight(layers[0].attn_norm);
  cluster_wait();
  blocks.wait();

  // One loop over (layer, phase), so that the unit loop is compiled once and the code stays small.
#pragma unroll 1
  for (int step = 0; step <= a.layers * kLayerPhases; ++step) {
    const int l = step / kLayerPhases;
    const int phase = l == a.layers ? int(kLogits) : step % kLayerPhases;
    const TokenLayer& layer = layers[l];
    const uint32_t flag = uint32_t(l) + 1;
    const int words = l * a.layer_words;
    if (phase == kAttnOut) {
      attention.attend(layer, flag, words);
      residual.drop_weight();
      columns_in.prefetch(a.att + words, summaries[kAttnOut].begin, summaries[kAttnOut].middle);
    }
    const float* const row_scale = layer.weight[phase == kLogits ? int(kQkv) : phase].row_scale;
    const bool split_k = phase == kAttnOut || phase == kFfnDown;
    const PhaseSummary summary = summaries[phase];
    const uint32_t* const columns = (phase == kAttnOut ? a.att : a.act) + words;
    if (split_k) {
      columns_in.wait(columns, summary.begin, summary.begin, summary.middle);
      ring.issue_deferred();
      columns_in.prefetch(columns, summary.middle, summary.end);
      residual.prefetch_weight(phase == kAttnOut ? layer.ffn_norm : layers[l + 1].attn_norm);
    } else {
      const uint32_t* const sum = phase == kGateUp ? a.out + words
                                  : step > 0       ? a.down + words - a.layer_words
                                                   : nullptr;
      residual.normalise(x_full, sum, phase == kGateUp ? layer.ffn_norm : layer.attn_norm, a.eps,
                         ring);
      if (phase == kQkv) attention.begin(layer);
    }
    const float scale = phase == kLogits ? 1.0f : prefetch_row_scale(a, summary, row_scale, phase);
    const TokenLane x(reinterpret_cast<const uint4*>(split_k ? x_slice : x_full), zeros, lane);
    if (phase == kQkv) task = ring.tasks;
    // Early tasks, which need only the first columns, then the rest. The refill behind the last
    // task is deferred past the next exchange, whose polls would queue behind its copy (not behind
    // qkv: attention is long enough for both).
    int count = (summary.early - warp + kTokenWarps - 1) / kTokenWarps;
#pragma unroll 1
    for (bool all = summary.early == summary.tasks;; all = true) {
      const bool defer_refill = all && phase != kQkv && phase != kLogits;
      multiply_tasks(ring, task, count, x, split_k && a.cluster > 1, phase != kLogits,
                     defer_refill);
      task += uint32_t(count) * uint32_t(sizeof(TokenTask));
      if (all) break;
      columns_in.wait(columns, summary.begin, summary.middle, summary.end);
      count = (summary.tasks - warp + kTokenWarps - 1) / kTokenWarps - count;
    }
    // The first columns that down needs are mostly published by now: poll them while this block
    // reduces its strips.
    if (phase == kGateUp) {
      columns_in.prefetch(a.act + words, summaries[kFfnDown].begin, summaries[kFfnDown].middle);
    }
    if (phase == kLogits) {
      __syncthreads();
      reduce_logits(a, shared, summary, row_scale);
    } else {
      uint32_t* const to = phase == kQkv       ? a.qkv
                           : phase == kAttnOut ? a.out
                           : phase == kGateUp  ? a.act
                                               : a.down;
      reduce_strips(a, shared, summary, row_scale, phase, flag, scale, to + words);
    }
    // Warps that are done sleep here instead of polling, which would slow the polls of others.
    __syncthreads();
  }
  blocks.end();
#endif
}

constexpr int padded_to_line(int64_t bytes) { return int((bytes + 127) / 128 * 128); }

template <class K, int D>
void lay_out(TokenArgs& a, int blocks) {
  TokenMemory& m = a.memory;
  int at = 0;
  const auto take = [&](int64_t bytes) {
    const int begin = at;
    at += padded_to_line(bytes);
    return begin;
  };
  m.ring = take(WeightRing::kBytes);
  m.ring_barriers = take(WeightRing::kBarrierBytes);
  m.layers = take(int64_t(a.layers + 1) * int64_t(sizeof(TokenLayer)));
  int64_t slice_bytes = 0, logit_sums = 0;
  m.tasks_per_warp = 0;
  for (int phase = 0; phase < kPhases; ++phase) {
    // Upper bound over blocks: strips per group rounded up.
    const PhaseWork w(a, phase, 0, blocks);
    const int groups = blocks / w.ranks, count = (w.shape.strips + groups - 1) / groups;
    const int slots = (count + w.ranks - 1) / w.ranks;
    const int64_t sums = int64_t(slots) * w.shape.halves * w.cut.part_count() * 64;
    m.tasks_per_warp += (count * w.shape.halves * w.parts + kTokenWarps - 1) / kTokenWarps;
    if (w.shape.split_k) {
      const int units = (w.shape.units + w.ranks - 1) / w.ranks + 1;
      slice_bytes = std::max<int64_t>(slice_bytes, int64_t(units) * kUnitCols * 2);
    }
    if (phase == kLogits) {
      logit_sums = sums;
    } else {
      m.sums[phase] = take(sums);
      m.barriers[phase] = take(slots * 8);
    }
  }
  m.tasks = take(int64_t(kTokenWarps) * m.tasks_per_warp * int64_t(sizeof(TokenTask)));
  m.zeros = take(48) + 16;  // in banks that no lane of TokenLane reads x from
  m.x_full = take(units_across(a.width) * kUnitCols * 2);
  m.x_slice = take(slice_bytes);
  m.attention = m.sums[kLogits] = take(std::max(int64_t(kAttentionSmemBytes<K, D>), logit_sums));
  m.bytes = at;
}

// Units of the busiest block in a layer: what the choice of the cluster size minimises.
inline int64_t most_units(const TokenArgs& a, int blocks) {
  int64_t units = 0;
  for (int phase = 0; phase < kLayerPhases; ++phase) {
    const PhaseWork w(a, phase, 0, blocks);
    const int groups = blocks / w.ranks;
    units +=
        int64_t((w.shape.strips + groups - 1) / groups) * w.shape.halves * w.shape.units / w.ranks;
  }
  return units;
}

template <class K, bool kWide, int D, bool kBias>
bool launch_as(const Context& c, TokenArgs& a, TokenLaunch launch) {
  const auto kernel = token_kernel<K, kWide, D, kBias>;
  if (!c.cooperative || c.capability < 90) return false;
  // No split-K part of a strip may be empty.
  if (std::min({units_across(a.width), units_across(a.q_heads * D), units_across(a.ffn)}) <
      StripSplitK::kQuarters) {
    return false;
  }
  // Tasks count bytes in 32 bits.
  const auto bytes = [&](int64_t out, int64_t in) { return int64_t(packed_size(out, in)); };
  if (std::max(bytes(a.vocab, a.width), bytes(2 * int64_t(a.ffn), a.width)) > 0xffffffff) {
    return false;
  }
  allow_shared(c, kernel);
  cudaLaunchConfig_t config = {};
  config.blockDim = dim3(kTokenThreads);
  config.stream = c.stream;
  cudaLaunchAttribute attributes[3];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = 1;
  attributes[2].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[2].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes;
  int best_cluster = 0, best_blocks = 0;
  int64_t least = 0;
  for (const int cluster : {4, 2, 1}) {
    a.cluster = cluster;
    config.gridDim = dim3(unsigned(c.sm_count / cluster * cluster));
    lay_out<K, D>(a, int(config.gridDim.x));
    if (size_t(a.memory.bytes) + 1024 > c.shared_per_block) continue;
    config.dynamicSmemBytes = size_t(a.memory.bytes);
    attributes[0].val.clusterDim = {unsigned(cluster), 1, 1};
    config.numAttrs = 1;
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) {
      cudaGetLastError();  // no such clusters here
      continue;
    }
    clusters = std::min(clusters, c.sm_count / cluster);
    if (clusters < 1) continue;
    const int64_t units = most_units(a, clusters * cluster);
    if (least == 0 || units < least) {
      least = units, best_cluster = cluster, best_blocks = clusters * cluster;
    }
  }
  if (best_blocks == 0) return false;
  a.cluster = best_cluster;
  lay_out<K, D>(a, best_blocks);
  if (size_t(a.memory.bytes) + 1024 > c.shared_per_block) return false;
  config.gridDim = dim3(unsigned(best_blocks));
  config.dynamicSmemBytes = size_t(a.memory.bytes);
  attributes[0].val.clusterDim = {unsigned(best_cluster), 1, 1};
  config.numAttrs = 3;
  if (launch == TokenLaunch::enqueue) NIBBLE_CUDA(cudaLaunchKernelEx(&config, kernel, a));
  return true;
}

// Scratch memory for the words, then the kernel for the model's width.
template <class K, int D, bool kBias>
bool launch_with(const Context& c, TokenArgs& a, TokenLaunch launch) {
  a.splits = split_kv::splits_for<K, D>(c.sm_count, a.kv_heads);
  // Sentinel words of two elements, or flagged words of one float; all of them in the scratch
  // memory.
  size_t bytes = 0;
  const auto take = [&](int64_t at_least) {
    std::byte* const begin = c.scratch() + bytes;
    bytes += size_t(at_least + 127) / 128 * 128;
    return begin;
  };
  const auto pairs = [&](int64_t elements) {
    return reinterpret_cast<uint32_t*>(take(elements * 2));
  };
  a.qkv = pairs(int64_t(a.q_heads + 2 * a.kv_heads) * D);
  a.att = pairs(int64_t(a.q_heads) * D);
  a.out = pairs(a.width);
  a.act = pairs(a.ffn);
  a.down = pairs(a.width);
  a.layer_words = int(bytes / sizeof(uint32_t));
  take(int64_t(bytes) * (a.layers - 1));
  const int64_t partials = int64_t(a.q_heads) * a.splits;
  a.stats = reinterpret_cast<uint64_t*>(take(2 * partials * int64_t(sizeof(uint64_t))));
  a.partials = reinterpret_cast<uint64_t*>(take(partials * D * int64_t(sizeof(uint64_t))));
  a.cleared = reinterpret_cast<uint4*>(c.scratch());
  if (bytes > Context::kScratchBytes) return false;
  a.to_clear = int(bytes / sizeof(uint4));
  a.arrivals = c.counters();
  a.scale = kLog2E / std::sqrt(float(D));
  if (a.width <= kTokenNarrow) return launch_as<K, false, D, kBias>(c, a, launch);
  if constexpr (D == 128) {
    return launch_as<K, true, D, kBias>(c, a, launch);
  } else {
    return false;  // one_launch.cu says so
  }
}
template <int D>
bool launch_heads(const Context& c, TokenArgs& a, bool f8_cache, bool bias, TokenLaunch launch) {
  if (f8_cache) {
    return bias ? launch_with<f8, D, true>(c, a, launch) : launch_with<f8, D, false>(c, a, launch);
  }
  return bias ? launch_with<bf16, D, true>(c, a, launch)
              : launch_with<bf16, D, false>(c, a, launch);
}

}  // namespace nibble::cuda

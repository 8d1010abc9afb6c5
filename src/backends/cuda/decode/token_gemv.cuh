// SPDX-License-Identifier: MIT
// A block's part of a matrix-vector product y = W x of token_kernel.cuh, with x in its shared
// memory.
//
// Mainloop: a warp walks its task list (token_plan.cuh), takes the units of a task from its weight
// ring, and sends 16 partial sums to the block that owns the strip: a store and an arrival, or
// st.async through DSMEM. Epilogue: one warp a strip waits on the strip's mbarrier for all
// partials, adds them in order (gemv_units.cuh: reduce_parts), applies row scale and SwiGLU, and
// publishes bf16 pairs as sentinel words, while other warps still multiply.
#pragma once
#include "backends/cuda/decode/sentinel_words.cuh"
#include "backends/cuda/decode/weight_ring.cuh"

namespace nibble::cuda {

// PhaseWork as the loop over layers needs it, in shared memory.
struct PhaseSummary {
  int tasks;                             // of this block
  int slots, first, rank, ranks, parts;  // see PhaseWork; parts of a quarter
  int strips;                            // of one half
  // Tasks that need only columns begin .. middle of those this block reads, begin .. end.
  int early, begin, middle, end;

  __device__ __forceinline__ int strip(int slot, int phase, int cluster) const {
    if (phase == kGateUp) {
      return interleaved_strip(strips, first + slot * int(gridDim.x), cluster);
    }
    return first + rank + slot * ranks;
  }
};

__device__ __forceinline__ Unit unit_at(const std::byte* p, int lane) {
  Unit u;
  u.a0 = reinterpret_cast<const uint4*>(p)[lane];
  u.a1 = reinterpret_cast<const uint4*>(p + 512)[lane];
  u.scales = reinterpret_cast<const uint32_t*>(p + kUnitCodeBytes)[lane];
  return u;
}

// Sends the 16 partial sums of a task. to_cluster: the owner may be another block of the cluster;
// counted: its barrier counts arrivals.
__device__ __forceinline__ void send_partials(float acc0, float acc1, int lane,
                                              const TokenTask& task, bool to_cluster,
                                              bool counted) {
  const int g = lane / 4, q = lane % 4;
  const uint32_t to = task.sums + uint32_t(g + 8 * q) * 4;
  const float v = reduce_quad(acc0, acc1, q);
  if (to_cluster) {
    // Completes the barrier by bytes: no fence needed.
    if (q < 2) {
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
          "r"(__float_as_uint(v)), "r"(task.barrier)
          : "memory");
    }
  } else {
    if (q < 2) store_word(to, __float_as_uint(v));
    __syncwarp();
    if (counted && lane == 0) {
      mbarrier_arrive(task.barrier);
    }
  }
}

// Mainloop over the next `count` tasks of this warp's list. defer_refill: the stage of the last
// task is not refilled here but by ring.issue_deferred().
__device__ __forceinline__ void multiply_tasks(WeightRing& ring, uint32_t task, int count,
                                               const TokenLane& x, bool to_cluster, bool counted,
                                               bool defer_refill) {
  const int lane = ring.lane;
#pragma unroll 1
  for (; count > 0; --count, task += uint32_t(sizeof(TokenTask))) {
    const TokenTask t = task_at(task);
    const uint4* token = x.unit(int(t.at()));
    float acc0 = 0, acc1 = 0;
    const std::byte* weights = ring.consumer_wait();
    int units = int(t.count());
#pragma unroll 1
    for (; units > 1; units -= 2) {
      const Unit first = unit_at(weights, lane), second = unit_at(weights + kUnitBytes, lane);
      multiply<bf16>(first, token, acc0, acc1);
      multiply<bf16>(second, token + x.step, acc0, acc1);
      weights += 2 * kUnitBytes, token += 2 * x.step;
    }
    if (units > 0) multiply<bf16>(unit_at(weights, lane), token, acc0, acc1);
    // Partials before the refill: other warps wait for them.
    send_partials(acc0, acc1, lane, t, to_cluster, counted);
    ring.consumer_release();
    if (defer_refill && count == 1) {
      ring.refill_deferred = true;
    } else {
      ring.producer_issue();
    }
  }
}

// Epilogue of the strips that this block owns, one warp a strip, the last warps first: they have
// the fewest tasks. The barrier's parity follows from the layer (flag).
__device__ __forceinline__ void reduce_strips(const TokenArgs& a, const std::byte* shared,
                                              const PhaseSummary& summary, const float* row_scale,
                                              int phase, uint32_t flag, float scale, uint32_t* to) {
  const int lane = int(threadIdx.x) % 32, row = lane % 16;
  const bool swiglu = phase == kGateUp;
  const int half = swiglu ? lane / 16 : 0, per_slot = (swiglu ? 8 : 4) * summary.parts * 16;
  const float* const sums = reinterpret_cast<const float*>(shared + a.memory.sums[phase]);
#pragma unroll 1
  for (int slot = kTokenWarps - 1 - int(threadIdx.x) / 32; slot < summary.slots;
       slot += kTokenWarps) {
    const int strip = summary.strip(slot, phase, a.cluster);
    if (row_scale && slot >= kTokenWarps) {
      scale = row_scale[(half * summary.strips + strip) * int(kUnitRows) + row];
    }
    const uint32_t barrier = shared_address(shared + a.memory.barriers[phase]) + uint32_t(slot) * 8;
    if (summary.ranks > 1 && lane == 0) mbarrier_arrive_expect_tx(barrier, uint32_t(per_slot) * 4);
    mbarrier_wait_or_trap(barrier, (flag & 1) ^ 1);
    float v = reduce_parts<bf16>(sums + slot * per_slot + half * 4 * summary.parts * 16,
                                 summary.parts, row);
    if (row_scale) v *= scale;
    bf16 rounded = from_f32<bf16>(v);
    if (swiglu) {
      const float up = __shfl_down_sync(0xffffffffu, to_f32(rounded), 16);
      rounded = swiglu_of(rounded, from_f32<bf16>(up));
    }
    const float own = to_f32(rounded), next = __shfl_down_sync(0xffffffffu, own, 1);
    uint32_t pair = pack_pair<bf16>(own, next);
    if (swiglu) pair = scaled_pair(pair);
    if (lane < 16 && lane % 2 == 0) publish_pair(to + (strip * int(kUnitRows) + lane) / 2, pair);
  }
}
// The row scale of the first strip that this warp reduces, loaded before the product.
__device__ __forceinline__ float prefetch_row_scale(const TokenArgs& a, const PhaseSummary& summary,
                                                    const float* row_scale, int phase) {
  const int slot = kTokenWarps - 1 - int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (!row_scale || slot >= summary.slots) return 1.0f;
  const int strip =
      summary.strip(slot, phase, a.cluster) + (phase == kGateUp ? lane / 16 * summary.strips : 0);
  return row_scale[strip * int(kUnitRows) + lane % 16];
}

// Epilogue of the head (logits), after a barrier of the block.
__device__ __forceinline__ void reduce_logits(const TokenArgs& a, const std::byte* shared,
                                              const PhaseSummary& summary, const float* row_scale) {
  const float* const sums = reinterpret_cast<const float*>(shared + a.memory.sums[kLogits]);
  for (int i = int(threadIdx.x); i < summary.slots * int(kUnitRows); i += kTokenThreads) {
    const int slot = i / int(kUnitRows), row = summary.first * int(kUnitRows) + i;
    float v =
        reduce_parts<bf16>(sums + slot * 4 * summary.parts * 16, summary.parts, i % int(kUnitRows));
    if (row_scale) v *= row_scale[row];
    a.logits.set(row, v);
  }
}

}  // namespace nibble::cuda

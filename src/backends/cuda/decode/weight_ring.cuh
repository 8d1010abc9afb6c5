// SPDX-License-Identifier: MIT
// The weight pipeline of token_kernel.cuh: each warp is producer and consumer of its own ring of
// kStages stages in shared memory, filled by cp.async.bulk with an mbarrier per stage. A stage
// holds one task (up to five units, 5,760 bytes). The producer runs ahead across phases and layers,
// so that HBM is busy while blocks wait for each other's activations.
//
// Loads into registers would run ahead, too, but everything else an SM loads then queues behind
// them: measured, polls and activations waited for 92 KB of weights.
#pragma once
#include "backends/cuda/decode/flagged_words.cuh"
#include "backends/cuda/decode/token_plan.cuh"
#include "backends/cuda/device_functions/bulk_copy.cuh"
#include "backends/cuda/device_functions/cluster.cuh"
#include "backends/cuda/device_functions/packed_unit.cuh"

namespace nibble::cuda {

__device__ __forceinline__ bool mbarrier_try_wait_parity(uint32_t barrier, uint32_t parity) {
  uint32_t passed;
  asm volatile(
      "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(passed)
      : "r"(barrier), "r"(parity)
      : "memory");
  return passed != 0;
}
__device__ __forceinline__ void mbarrier_wait_or_trap(uint32_t barrier, uint32_t parity) {
  for (SpinWatchdog watchdog; !mbarrier_try_wait_parity(barrier, parity);) watchdog.tick();
}

// Two stages of five units: one is consumed while the other is in flight. (Three stages of three or
// of two units are slower by 3 and 8 %: more barriers and copies for the same bytes.)
//
// Bytes in flight are not free: 138 KB on each of 132 SMs are 18 MB, four times what HBM needs to
// be busy, and a poll waits behind them. So the last refill of a phase can be deferred until the
// next phase's activations have arrived: 846 -> 929 tokens a second.
struct WeightRing {
  static constexpr int kStages = 2;
  static constexpr uint32_t kStageBytes = kUnitsInFlight * uint32_t(kUnitBytes);
  static constexpr int kBytes = kTokenWarps * kStages * int(kStageBytes);
  static constexpr int kBarrierBytes = kTokenWarps * kStages * 8;
  // L2::evict_first (the encoding that createpolicy.fractional makes): weights are read once a
  // token.
  static constexpr uint64_t kPolicy = 0x12f0000000000000;

  int lane;
  uint32_t stages, barriers;  // this warp's; these and all below are shared memory addresses
  uint32_t tasks;             // this warp's list: the tasks of a layer, then those of the head ...
  uint32_t layer_end, end;    // ... end of the layer's, end of all
  uint32_t next;              // the producer's next task
  uint32_t layer, head;       // TokenLayer of that task; that of the head
  uint32_t consumed = 0;      // tasks consumed: gives stage and parity
  bool refill_deferred = false;  // the stage consumed last is empty and not refilled

  __device__ __forceinline__ WeightRing(const TokenArgs& a, std::byte* shared) {
    const int warp = int(threadIdx.x) / 32;
    lane = int(threadIdx.x) % 32;
    stages = shared_address(shared + a.memory.ring) + uint32_t(warp * kStages) * kStageBytes;
    barriers = shared_address(shared + a.memory.ring_barriers) + uint32_t(warp * kStages * 8);
    tasks = shared_address(shared + a.memory.tasks) +
            uint32_t(warp * a.memory.tasks_per_warp) * uint32_t(sizeof(TokenTask));
    layer = shared_address(shared + a.memory.layers);
    head = layer + uint32_t(a.layers) * uint32_t(sizeof(TokenLayer));
    if (lane < kStages) mbarrier_init(barriers + uint32_t(lane) * 8, 1);
  }
  // Tasks of this warp in a layer, and with the head. Fills all stages.
  __device__ __forceinline__ void begin(int tasks_of_layer, int all_tasks) {
    layer_end = tasks + uint32_t(tasks_of_layer) * uint32_t(sizeof(TokenTask));
    end = tasks + uint32_t(all_tasks) * uint32_t(sizeof(TokenTask));
    next = tasks;
    if (tasks_of_layer == 0) layer = head, layer_end = 0;
    for (uint32_t i = 0; i < kStages; ++i) producer_issue(i);
  }

  // Refills the stage consumed last with the next task's weights, if there is one; by whole warps,
  // whose lanes have all read it.
  __device__ __forceinline__ void producer_issue() { producer_issue((consumed + 1) % kStages); }
  // The refill that was deferred, if one was.
  __device__ __forceinline__ void issue_deferred() {
    if (refill_deferred) producer_issue();
    refill_deferred = false;
  }

  // Waits for the stage of the next task.
  __device__ __forceinline__ const std::byte* consumer_wait() const {
    const uint32_t stage = consumed % kStages;
    mbarrier_wait_or_trap(barriers + stage * 8, consumed / kStages % 2);
    return static_cast<const std::byte*>(__cvta_shared_to_generic(stages + stage * kStageBytes));
  }
  // All lanes have read the stage.
  __device__ __forceinline__ void consumer_release() {
    __syncwarp();
    ++consumed;
  }

 private:
  // Only lane 0 keeps the producer's position.
  __device__ __forceinline__ void producer_issue(uint32_t stage) {
    if (lane != 0) return;
    if (next == layer_end) {
      layer += uint32_t(sizeof(TokenLayer));
      if (layer != head) next = tasks;
    }
    if (next == end) return;
    const TokenTask t = task_at(next);
    next += uint32_t(sizeof(TokenTask));
    const uint8_t* packed;
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(packed) : "r"(layer + t.weight()) : "memory");
    const uint32_t barrier = barriers + stage * 8, bytes = t.count() * uint32_t(kUnitBytes);
    mbarrier_arrive_expect_tx(barrier, bytes);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(stages + stage * kStageBytes),
        "l"(packed + t.begin), "r"(bytes), "r"(barrier), "l"(kPolicy)
        : "memory");
  }
};

}  // namespace nibble::cuda

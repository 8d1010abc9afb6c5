// SPDX-License-Identifier: MIT
// A warp's way through the weights of a token: its own ring in shared memory, filled by bulk copies
// that run ahead across phases and layers, so that memory works while blocks wait for each other.
// (Loads into registers would, too, but everything else a multiprocessor loads then queues behind
// them: measured, polls and activations waited for 92 KB of weights.)
#pragma once
#include "backends/cuda/decode/flagged_words.cuh"
#include "backends/cuda/decode/token_plan.cuh"
#include "backends/cuda/device/bulk_copy.cuh"
#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/packed_unit.cuh"

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

// Two tasks of a warp: one is used while the other is on its way. (Three places of three units, or
// of two, are slower by 3 and 8 %: more barriers and copies for the same bytes.)
//
// What a multiprocessor asks for at once is not free: 138 KB of 132 multiprocessors are 18 MB, four
// times what memory needs to be busy, and a load of a word waits behind them. So the last fill of a
// phase can be put off until the words of the next have come: 846 -> 929 tokens a second.
struct WeightRing {
  static constexpr int kStages = 2;
  static constexpr uint32_t kStageBytes = kUnitsInFlight * uint32_t(kUnitBytes);
  static constexpr int kBytes = kTokenWarps * kStages * int(kStageBytes);
  static constexpr int kBarrierBytes = kTokenWarps * kStages * 8;
  // Weights are read once a token: they need not push anything else out of the L2 cache. This is
  // what createpolicy.fractional.L2::evict_first makes.
  static constexpr uint64_t kPolicy = 0x12f0000000000000;

  int lane;
  uint32_t stages, barriers;  // this warp's; these and what follows are addresses in shared memory
  uint32_t tasks;             // this warp's, of a layer and then of the head ...
  uint32_t layer_end, end;    // ... and where those of the layer and all of them end
  uint32_t next;              // task whose weights are asked for next
  uint32_t layer, head;       // TokenLayer of that task; of the head
  uint32_t consumed = 0;      // tasks used: the place and the parity of its barrier follow from it
  bool refill_deferred = false;  // the place used last is free and has not been asked for

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
  // How many tasks this warp has in a layer, and with the head; then fills the ring.
  __device__ __forceinline__ void begin(int tasks_of_layer, int all_tasks) {
    layer_end = tasks + uint32_t(tasks_of_layer) * uint32_t(sizeof(TokenTask));
    end = tasks + uint32_t(all_tasks) * uint32_t(sizeof(TokenTask));
    next = tasks;
    if (tasks_of_layer == 0) layer = head, layer_end = 0;
    for (uint32_t i = 0; i < kStages; ++i) producer_issue(i);
  }

  // Asks for the weights of the next task, if there is one, into the place that was used last; by
  // whole warps, whose lanes have used it.
  __device__ __forceinline__ void producer_issue() { producer_issue((consumed + 1) % kStages); }
  // A fill that was put off.
  __device__ __forceinline__ void issue_deferred() {
    if (refill_deferred) producer_issue();
    refill_deferred = false;
  }

  // The weights of the task that comes next, when they are there.
  __device__ __forceinline__ const std::byte* consumer_wait() const {
    const uint32_t stage = consumed % kStages;
    mbarrier_wait_or_trap(barriers + stage * 8, consumed / kStages % 2);
    return static_cast<const std::byte*>(__cvta_shared_to_generic(stages + stage * kStageBytes));
  }
  // They have been used.
  __device__ __forceinline__ void consumer_release() {
    __syncwarp();
    ++consumed;
  }

 private:
  // Lane 0 alone knows what comes next.
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

// SPDX-License-Identifier: MIT
// A warp's way through the weights of a token: its own ring in shared memory, filled by bulk copies
// that run ahead across phases and layers, so that memory works while blocks wait for each other.
// (Loads into registers would, too, but everything else a multiprocessor loads then queues behind
// them: measured, polls and activations waited for 92 KB of weights.)
#pragma once
#include "backends/cuda/decode/tagged_words.cuh"
#include "backends/cuda/decode/token_plan.cuh"
#include "backends/cuda/device/bulk_copy.cuh"
#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/packed_unit.cuh"

namespace nibble::cuda {

__device__ __forceinline__ bool barrier_passed(uint32_t barrier, uint32_t parity) {
  uint32_t passed;
  asm volatile(
      "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(passed)
      : "r"(barrier), "r"(parity)
      : "memory");
  return passed != 0;
}
__device__ __forceinline__ void await_barrier(uint32_t barrier, uint32_t parity) {
  for (Patience patience; !barrier_passed(barrier, parity);) patience.use();
}

// Two tasks of a warp: one is used while the other is on its way. (Three places of three units, or
// of two, are slower by 3 and 8 %: more barriers and copies for the same bytes.)
struct WeightRing {
  static constexpr int kPlaces = 2;
  static constexpr uint32_t kPlaceBytes = kUnitsInFlight * uint32_t(kUnitBytes);
  static constexpr int kBytes = kTokenWarps * kPlaces * int(kPlaceBytes);
  static constexpr int kBarrierBytes = kTokenWarps * kPlaces * 8;

  int lane;
  uint32_t places, barriers;  // this warp's, addresses in shared memory
  const std::byte* memory;    // the same places
  const TokenTask* tasks;     // this warp's, of a layer and then of the head
  const TokenLayer* layers;
  int of_layer, of_all, last_layer;
  // What is asked for next: `units` from `from` on; behind them task `next` of `layer`.
  const uint8_t* from = nullptr;
  int units = 0, next = 0, layer = 0;
  int filled = 0;  // place that is filled next
  int used = 0;    // place that is used next, and the parity of its barrier
  uint32_t parity = 0;
  uint64_t policy;

  __device__ __forceinline__ WeightRing(const TokenArgs& a, std::byte* shared) {
    const int warp = int(threadIdx.x) / 32;
    lane = int(threadIdx.x) % 32;
    memory = shared + a.memory.ring + warp * kPlaces * int(kPlaceBytes);
    places = shared_address(memory);
    barriers = shared_address(shared + a.memory.ring_barriers) + uint32_t(warp * kPlaces * 8);
    tasks = reinterpret_cast<const TokenTask*>(shared + a.memory.tasks) + warp * a.memory.list;
    layers = reinterpret_cast<const TokenLayer*>(shared + a.memory.layers);
    last_layer = a.layers - 1;
    if (lane < kPlaces) init_barrier(barriers + uint32_t(lane) * 8, 1);
    // Weights are read once a token: they need not push anything else out of the L2 cache.
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  }
  // How many tasks this warp has in a layer, and with the head; then fills the ring.
  __device__ __forceinline__ void begin(int tasks_of_layer, int all_tasks) {
    of_layer = tasks_of_layer, of_all = all_tasks;
    next_task();
    for (int i = 0; i < kPlaces; ++i) fill();
  }

  // Asks for the weights of the next task, if there is one, into the place that was used last; by
  // whole warps, whose lanes have used it.
  __device__ __forceinline__ void fill() {
    if (units == 0) return;
    if (lane == 0) {
      const uint32_t barrier = barriers + uint32_t(filled) * 8;
      const uint32_t bytes = uint32_t(units) * uint32_t(kUnitBytes);
      arrive_expecting(barrier, bytes);
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
          "[%0], [%1], %2, [%3], %4;" ::"r"(places + uint32_t(filled) * kPlaceBytes),
          "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
          : "memory");
    }
    filled = filled + 1 == kPlaces ? 0 : filled + 1;
    next_task();
  }

  // The weights of the task that comes next, when they are there.
  __device__ __forceinline__ const std::byte* await() const {
    await_barrier(barriers + uint32_t(used) * 8, parity);
    return memory + uint32_t(used) * kPlaceBytes;
  }
  // They have been used.
  __device__ __forceinline__ void release() {
    __syncwarp();
    used = used + 1 == kPlaces ? 0 : used + 1;
    if (used == 0) parity ^= 1;
  }

 private:
  __device__ __forceinline__ void next_task() {
    units = 0;
    if (next == of_layer && layer < last_layer) next = 0, ++layer;
    if (next == of_all) return;
    const TokenTask& t = tasks[next++];
    const bool head = t.phase == kLogits;
    const TokenLayer& l = layers[head ? last_layer + 1 : layer];
    from = l.weight[head ? int(kQkv) : t.phase].packed + int64_t(t.unit) * kUnitBytes;
    units = t.count;
  }
};

}  // namespace nibble::cuda

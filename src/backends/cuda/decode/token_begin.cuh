// SPDX-License-Identifier: MIT
// How the blocks of a token begin: words cleared, tables made, and the one meeting of all blocks.
#pragma once
#include "backends/cuda/decode/open_words.cuh"
#include "backends/cuda/decode/token_product.cuh"

namespace nibble::cuda {

// Makes the words between blocks what means that nothing has come, and waits until all blocks have
// done so.
struct BeginTogether {
  unsigned* arrivals;
  __device__ __forceinline__ explicit BeginTogether(const TokenArgs& a) : arrivals(a.arrivals) {
    for (int i = int(blockIdx.x) * kTokenThreads + int(threadIdx.x); i < a.to_clear;
         i += int(gridDim.x) * kTokenThreads) {
      a.cleared[i] = make_uint4(kNothing, kNothing, kNothing, kNothing);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
    }
  }
  __device__ __forceinline__ void wait() const {
    if (threadIdx.x == 0) {
      unsigned v = 0;
      for (Patience patience; v < gridDim.x; patience.use()) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(arrivals) : "memory");
      }
    }
    __syncthreads();
  }
  // The block that ends last leaves the counters as they were.
  __device__ __forceinline__ void end() const {
    if (threadIdx.x == 0 && atomicAdd(arrivals + 1, 1u) == gridDim.x - 1) {
      arrivals[0] = arrivals[1] = 0;
    }
  }
};

// Tables in shared memory that hold for all layers.
__device__ __forceinline__ void set_up(const TokenArgs& a, std::byte* shared, PhaseNote* notes) {
  const int t = int(threadIdx.x);
  const auto* const from = reinterpret_cast<const uint32_t*>(a.layer);
  for (int i = t; i < (a.layers + 1) * int(sizeof(TokenLayer) / 4); i += kTokenThreads) {
    reinterpret_cast<uint32_t*>(shared + a.memory.layers)[i] = from[i];
  }
  int before = 0;  // tasks of warp i % kTokenWarps in the phases before
#pragma unroll 1
  for (int phase = 0; phase < kPhases; ++phase) {
    const PhaseWork w(a, phase, int(blockIdx.x), int(gridDim.x));
    const uint32_t barriers =
        phase < kLayerPhases ? shared_address(shared + a.memory.barriers[phase]) : 0;
    // kTokenThreads is a multiple of kTokenWarps: a thread fills the list of one warp.
    const int warp = t % kTokenWarps;
    TokenTask* const list =
        reinterpret_cast<TokenTask*>(shared + a.memory.tasks) + warp * a.memory.list + before;
    for (int i = t; i < w.tasks(); i += kTokenThreads) {
      list[i / kTokenWarps] =
          make_task(w, phase, i, shared_address(shared + a.memory.sums[phase]), barriers);
    }
    before += w.tasks_of_warp(warp);
    if (phase < kLayerPhases && t < w.slots) {
      // Sums that come from other blocks are counted by their bytes.
      init_barrier(barriers + uint32_t(t) * 8,
                   w.ranks > 1 ? 1 : w.shape.halves * w.cut.all_parts());
    }
    if (t == 0) {
      constexpr int cols = int(kUnitCols);
      const int early = phase == kFfnDown ? w.early_tasks() : w.tasks();
      const int middle = phase == kFfnDown ? w.unit_middle() : w.unit_end();
      notes[phase] = {w.tasks(),
                      w.slots,
                      w.first,
                      w.rank,
                      w.ranks,
                      w.cut.parts,
                      w.shape.strips,
                      early,
                      w.unit_begin() * cols,
                      middle * cols,
                      w.unit_end() * cols};
    }
  }
}

}  // namespace nibble::cuda

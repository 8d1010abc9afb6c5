// SPDX-License-Identifier: MIT
// The prologue of token_kernel.cuh: the exchange words are set to "unwritten", the tile scheduler's
// tables are built in shared memory, and all blocks pass one grid barrier, the only one of the
// kernel.
#pragma once
#include "backends/cuda/decode/sentinel_words.cuh"
#include "backends/cuda/decode/token_gemv.cuh"

namespace nibble::cuda {

// Grid barrier behind the clearing of all exchange words: the constructor clears this block's part
// and arrives (release), wait() spins until all blocks have (acquire).
struct StartBarrier {
  unsigned* arrivals;
  __device__ __forceinline__ explicit StartBarrier(const TokenArgs& a) : arrivals(a.arrivals) {
    for (int i = int(blockIdx.x) * kTokenThreads + int(threadIdx.x); i < a.to_clear;
         i += int(gridDim.x) * kTokenThreads) {
      a.cleared[i] = make_uint4(kUnwritten, kUnwritten, kUnwritten, kUnwritten);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
    }
  }
  __device__ __forceinline__ void wait() const {
    if (threadIdx.x == 0) {
      unsigned v = 0;
      for (SpinWatchdog watchdog; v < gridDim.x; watchdog.tick()) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(arrivals) : "memory");
      }
    }
    __syncthreads();
  }
  // The last block to finish resets the counters for the next launch.
  __device__ __forceinline__ void end() const {
    if (threadIdx.x == 0 && atomicAdd(arrivals + 1, 1u) == gridDim.x - 1) {
      arrivals[0] = arrivals[1] = 0;
    }
  }
};

// Tables in shared memory that serve all layers: copies of the layer descriptors, a summary of each
// phase, the task list of every warp, the barriers of owned strips. Two warps build one phase.
__device__ __forceinline__ void build_tables(const TokenArgs& a, std::byte* shared,
                                             PhaseSummary* summaries) {
  constexpr int kPhaseThreads =
      60;  // of 64, a multiple of the warps: a thread serves one warp's list
  static_assert(kPhaseThreads % kTokenWarps == 0 && kPhases * 64 <= kTokenThreads);
  const int phase = int(threadIdx.x) / 64, t = int(threadIdx.x) % 64;
  const auto* const from = reinterpret_cast<const uint2*>(a.layer);
  for (int i = int(threadIdx.x); i < (a.layers + 1) * int(sizeof(TokenLayer) / 8);
       i += kTokenThreads) {
    reinterpret_cast<uint2*>(shared + a.memory.layers)[i] = from[i];
  }
  const PhaseWork w(a, min(phase, kPhases - 1), int(blockIdx.x), int(gridDim.x));
  const uint32_t barriers =
      phase < kLayerPhases ? shared_address(shared + a.memory.barriers[phase]) : 0;
  const int early = phase == kFfnDown ? w.early_tasks() : w.tasks();
  if (phase < kPhases && t == 0) {
    constexpr int cols = int(kUnitCols);
    const int middle = phase == kFfnDown ? w.unit_middle() : w.unit_end();
    const auto columns = [&](int units) { return min(units * cols, w.shape.columns); };
    summaries[phase] = {w.tasks(),
                        w.slots,
                        w.first,
                        w.rank,
                        w.ranks,
                        w.cut.parts,
                        w.shape.strips,
                        early,
                        w.unit_begin() * cols,
                        columns(middle),
                        columns(w.unit_end())};
  }
  if (phase < kLayerPhases) {
    // With split-K over a cluster, partials arrive by st.async and complete the barrier by bytes.
    const int arrivals = w.ranks > 1 ? 1 : w.shape.halves * w.cut.part_count();
    for (int i = t; i < w.slots; i += 64) mbarrier_init(barriers + uint32_t(i) * 8, arrivals);
  }
  __syncthreads();
  if (phase >= kPhases || t >= kPhaseThreads) return;
  const int warp = t % kTokenWarps;
  TokenTask* list =
      reinterpret_cast<TokenTask*>(shared + a.memory.tasks) + warp * a.memory.tasks_per_warp;
  for (int p = 0; p < phase; ++p)
    list += (summaries[p].tasks - warp + kTokenWarps - 1) / kTokenWarps;
#pragma unroll 1
  for (int i = t; i < w.tasks(); i += kPhaseThreads) {
    list[i / kTokenWarps] =
        make_task(w, phase, i, shared_address(shared + a.memory.sums[phase]), barriers);
  }
}

}  // namespace nibble::cuda

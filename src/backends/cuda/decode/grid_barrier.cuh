// SPDX-License-Identifier: MIT
// A barrier of all blocks of a grid that is resident as a whole (cooperative launch), in two
// halves: what a thread wrote before its block arrived is seen by all threads after they have
// waited. What lies between the halves runs while others arrive.
#pragma once
#include <cstdint>

namespace nibble::cuda {

class GridBarrier {
 public:
  // counters[0] and counters[32]: zero before the kernel, and after it once every block has left.
  __device__ explicit GridBarrier(unsigned* counters) : counters_(counters) {}

  __device__ __forceinline__ void arrive() {
    __syncthreads();
    target_ += gridDim.x;
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counters_) : "memory");
    }
  }

  __device__ __forceinline__ void wait() {
    if (threadIdx.x == 0) {
      unsigned polls = 0;
      while (int(arrived() - target_) < 0) {
        if ((++polls & 0xfffffu) == 0) watch(polls);
      }
    }
    __syncthreads();
  }

  // The last block to leave makes the counters zero again. Nothing may wait after it.
  __device__ __forceinline__ void leave() {
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(counters_ + 32, 1u) == gridDim.x - 1) {
      counters_[0] = 0, counters_[32] = 0;
    }
  }

 private:
  __device__ __forceinline__ unsigned arrived() const {
    unsigned v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counters_) : "memory");
    return v;
  }
  // A block that never arrives would be a hang: after minutes of a million polls each, an error.
  __device__ __noinline__ void watch(unsigned polls) const {
    if (polls > 0x40000000u) __trap();
  }

  unsigned* counters_;
  unsigned target_ = 0;
};

}  // namespace nibble::cuda

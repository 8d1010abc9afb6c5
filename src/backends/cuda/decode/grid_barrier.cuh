// SPDX-License-Identifier: MIT
// A barrier of all blocks of a grid that is resident as a whole (cooperative launch), in two
// halves: what a thread wrote before its block arrived is seen by all threads after they have
// waited. What lies between the halves runs while others arrive.
//
// Every block has a word of its own, which counts its arrivals, and waits for those of all blocks:
// no word is written by two, so nothing queues. Words are never set back: at the end of a kernel
// all are equal, and the next one goes on from there.
#pragma once
#include <cstdint>
#include <cstdio>

namespace nibble::cuda {

class GridBarrier {
 public:
  // words: one a block, equal when the kernel begins.
  __device__ __forceinline__ explicit GridBarrier(unsigned* words)
      : words_(words), arrivals_(words[blockIdx.x]) {}

  __device__ __forceinline__ void arrive() {
    __syncthreads();
    ++arrivals_;
    if (threadIdx.x == 0) {
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(words_ + blockIdx.x), "r"(arrivals_)
                   : "memory");
    }
  }

  __device__ __forceinline__ void wait() {
    for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
      unsigned polls = 0;
      while (int(arrivals_of(block) - arrivals_) < 0) {
        if (++polls == kMostPolls) give_up(block);
      }
    }
    __syncthreads();
  }

 private:
  __device__ __forceinline__ unsigned arrivals_of(unsigned block) const {
    unsigned v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(words_ + block) : "memory");
    return v;
  }
  // A block that never arrives would be a hang: after some seconds of polls it becomes an error.
  static constexpr unsigned kMostPolls = 0x800000;
  __device__ __noinline__ void give_up(unsigned block) const {
    printf("block %u waits for arrival %u of block %u, which is at %u\n", blockIdx.x, arrivals_,
           block, arrivals_of(block));
    __trap();
  }

  unsigned* words_;
  unsigned arrivals_;
};

}  // namespace nibble::cuda

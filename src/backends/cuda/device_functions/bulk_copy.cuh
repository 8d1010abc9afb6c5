// SPDX-License-Identifier: MIT
// cp.async.bulk (the non-tensor TMA copy of contiguous bytes into shared memory) and mbarriers, by
// shared memory address. Such copies bypass L1, whose loads return in order, and hold no registers.
// Compute capability 9.0; before it the functions are empty and must not be reached.
#pragma once
#include "backends/cuda/device_functions/shared_memory.cuh"

namespace nibble::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool kHasBulkCopy = true;
#else
constexpr bool kHasBulkCopy = false;
#endif

// An mbarrier by address. Phases are counted from 0; a wait names the parity of the phase it waits
// for.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
#endif
}
// Makes mbarrier_init visible to the async proxy and the cluster: after all of a thread's
// mbarrier_init, before the block's __syncthreads.
__device__ __forceinline__ void mbarrier_init_fence() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}
// Arrives and raises the transaction count: the phase completes after `bytes` more have been
// copied.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}
__device__ __forceinline__ void mbarrier_wait_parity(uint32_t barrier, uint32_t phase_bit) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(phase_bit)
      : "memory");
#endif
}
// Issued by one thread; addresses and size are multiples of 16.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
#endif
}

}  // namespace nibble::cuda

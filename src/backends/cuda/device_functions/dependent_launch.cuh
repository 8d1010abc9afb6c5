// SPDX-License-Identifier: MIT
// The device side of programmatic dependent launch (PDL, griddepcontrol); launch.h sets the
// attribute on every launch.
//
// The rule: a kernel calls pdl_wait() before it reads anything but weights, and
// pdl_launch_dependents() only after that wait. Then whatever runs ahead of its own wait knows that
// all kernels but its direct predecessor have completed, so weights may be prefetched before it.
// Kernels that write weights never call pdl_launch_dependents(). (decode/token_kernel.cuh also
// clears scratch memory before its wait, and says why it may.)
#pragma once

namespace nibble::cuda {

__device__ __forceinline__ void pdl_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void pdl_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Most kernels: wait for the predecessor, then let the successor's prologue start.
__device__ __forceinline__ void pdl_enter() {
  pdl_wait();
  pdl_launch_dependents();
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// The device half of programmatic dependent launch (launch.h).
//
// A kernel waits before it reads anything but weights, and lets its successor start only after
// that wait: then whatever runs ahead of its own wait knows that all kernels but its direct
// predecessor have ended, so weights may be read ahead. Kernels that write weights never call
// pdl_launch_dependents(). (The kernel of a whole token clears scratch memory before its wait, too,
// and says why it may.)
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

// Most kernels: wait, then let the next one set itself up.
__device__ __forceinline__ void pdl_enter() {
  pdl_wait();
  pdl_launch_dependents();
}

}  // namespace nibble::cuda

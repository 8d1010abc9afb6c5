// SPDX-License-Identifier: MIT
// The device half of programmatic dependent launch (launch.h).
//
// A kernel waits before it reads anything but weights, and lets its successor start only after
// that wait: then whatever runs ahead of its own wait knows that all kernels but its direct
// predecessor have ended, so weights may be read ahead. Kernels that write weights never call
// let_next_start(). (The kernel of a whole token clears scratch memory before its wait, too, and
// says why it may.)
#pragma once

namespace nibble::cuda {

__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Most kernels: wait, then let the next one set itself up.
__device__ __forceinline__ void enter() {
  wait_for_previous();
  let_next_start();
}

}  // namespace nibble::cuda

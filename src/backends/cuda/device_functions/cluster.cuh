// SPDX-License-Identifier: MIT
// Thread block clusters: distributed shared memory (DSMEM) and the cluster barrier. Before compute
// capability 9.0 kernels are launched with one block a cluster and never get here.
#pragma once
#include "backends/cuda/device_functions/shared_memory.cuh"

namespace nibble::cuda {

// mapa: the same address in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ uint32_t dsmem_address(uint32_t address, uint32_t rank) {
#if __CUDA_ARCH__ >= 900
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
#else
  return address;
#endif
}
__device__ __forceinline__ float dsmem_load(uint32_t address) {
  float v = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
#endif
  return v;
}

// The cluster barrier in two halves: writes before arrive (release) are visible after wait
// (acquire).
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Kernel launches. Kernels start before their predecessor has ended (programmatic dependent launch,
// compute capability 9.0 and later) and wait for it themselves with
// device_functions/dependent_launch.cuh.
#pragma once
#include "backends/cuda/context.h"

namespace nibble::cuda {

struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;     // neighbouring blocks (x) that share memory; compute capability 9.0
};

// Every kernel launched this way must call pdl_wait() before it touches memory that
// another kernel of the stream reads or writes.
template <class... Params, class... Args>
void launch(const Context& c, const Grid& g, void (*kernel)(Params...), Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = g.blocks;
  config.blockDim = g.threads;
  config.dynamicSmemBytes = g.shared_bytes;
  config.stream = c.stream;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {g.cluster, 1, 1};
  if (c.capability >= 90) {
    config.attrs = attributes;
    config.numAttrs = g.cluster > 1 ? 2 : 1;
  }
  if (g.blocks.x == 0 || g.blocks.y == 0 || g.blocks.z == 0) return;
  NIBBLE_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

// Lets a kernel use all of the device's shared memory; every kernel may use 48 KiB, its static part
// included.
template <class... Params>
void allow_shared(const Context& c, void (*kernel)(Params...)) {
  const void* const address = reinterpret_cast<const void*>(kernel);
  KernelLimits& limits = c.limits_of(address);
  if (limits.shared_allowed) return;
  cudaFuncAttributes attributes = {};
  NIBBLE_CUDA(cudaFuncGetAttributes(&attributes, address));
  NIBBLE_CUDA(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   int(c.shared_per_block - attributes.sharedSizeBytes)));
  limits.shared_allowed = true;
}

inline unsigned blocks_for(int64_t work, int64_t per_block) {
  return unsigned((work + per_block - 1) / per_block);
}

}  // namespace nibble::cuda

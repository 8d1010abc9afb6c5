// SPDX-License-Identifier: MIT
#include "backends/cuda/context.h"

namespace nibble::cuda {
namespace {

// Stands for all of our kernels: they are compiled for the same architectures.
__global__ void any_kernel() {}

}  // namespace

int compiled_capability() {
  cudaFuncAttributes attributes = {};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, any_kernel);
  if (error == cudaSuccess) return attributes.ptxVersion;
  cudaGetLastError();  // no kernel image for this device
  return 0;
}

}  // namespace nibble::cuda

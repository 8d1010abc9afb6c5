// SPDX-License-Identifier: MIT
// What a build without CUDA says.
#include "backends/cuda/cuda_backend.h"

namespace nibble {

CudaSupport cuda_support() {
  return {{},
          "this build of nibble has no CUDA backend; build it where nvcc 12.8 or later is found, "
          "or use --device cpu"};
}

std::string cuda_problem(const CudaDevice&) { return cuda_support().problem; }

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions&) {
  throw_device("--device cuda: {}", cuda_support().problem);
}

bool is_cuda(const Backend&) { return false; }

std::string cuda_linear_kernels(const Backend&, DType, Activations) { return {}; }
int cuda_whole_tokens(const Backend&) { return 0; }

CudaMemory cuda_memory() { return {}; }

uint64_t cuda_used_memory() { return 0; }

}  // namespace nibble

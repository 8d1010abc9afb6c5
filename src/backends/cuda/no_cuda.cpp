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

std::string cuda_blas_library() { return {}; }

}  // namespace nibble

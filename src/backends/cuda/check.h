// SPDX-License-Identifier: MIT
// CUDA calls that throw DeviceError with the call, its place and the error's name.
#pragma once
#include <cuda_runtime.h>

namespace nibble::cuda {

[[noreturn]] void fail(cudaError_t error, const char* call, const char* file, int line);

inline void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error != cudaSuccess) fail(error, call, file, line);
}

}  // namespace nibble::cuda

// Of cuBLASLt's calls, too, with blas_lt.h.
#define NIBBLE_CUDA(call) ::nibble::cuda::check((call), #call, __FILE__, __LINE__)

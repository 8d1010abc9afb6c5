// SPDX-License-Identifier: MIT
// CUDA and cuBLASLt calls that throw DeviceError with the call, its place and the error's name.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

namespace nibble::cuda {

[[noreturn]] void fail(cudaError_t error, const char* call, const char* file, int line);
[[noreturn]] void fail(cublasStatus_t status, const char* call, const char* file, int line);

inline void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error != cudaSuccess) fail(error, call, file, line);
}
inline void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(status, call, file, line);
}

}  // namespace nibble::cuda

#define NIBBLE_CUDA(call) ::nibble::cuda::check((call), #call, __FILE__, __LINE__)

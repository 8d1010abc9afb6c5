// SPDX-License-Identifier: MIT
// cuBLASLt, opened at run time: a binary built with CUDA starts on machines without it. Its header
// is a large one: sources of kernels do without this file.
#pragma once
#include <cublasLt.h>

#include "backends/cuda/check.h"

namespace nibble::cuda {

[[noreturn]] void fail(cublasStatus_t status, const char* call, const char* file, int line);
inline void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(status, call, file, line);
}

class BlasLt {
 public:
  BlasLt();  // DeviceError that says where the library was looked for
  ~BlasLt();
  BlasLt(const BlasLt&) = delete;
  BlasLt& operator=(const BlasLt&) = delete;

  cublasLtHandle_t handle = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_get = nullptr;

 private:
  void close();
  void* library_ = nullptr;
  decltype(&cublasLtDestroy) destroy_ = nullptr;
};

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// cuBLASLt's choices for products of NVFP4 with NVFP4.
#pragma once
#include <map>
#include <tuple>

#include "backends/cuda/blas_lt.h"
#include "core/dtype.h"

namespace nibble::cuda {

// By rows of the weight and of x, width, stride and type of the result.
struct Fp4Algorithms {
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, DType>;
  std::map<Key, cublasLtMatmulAlgo_t> chosen;
};

}  // namespace nibble::cuda

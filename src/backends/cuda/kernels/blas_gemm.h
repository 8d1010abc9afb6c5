// SPDX-License-Identifier: MIT
// Products of 16-bit floats by cuBLASLt with fp32 accumulation, and the plans it made for them: its
// heuristics are asked once a shape.
#pragma once
#include <map>
#include <tuple>

#include "backends/cuda/blas_lt.h"
#include "core/tensor.h"

namespace nibble::cuda {

struct Context;

struct GemmShape {
  int64_t out, n, in;            // C [n, out] = B [n, in] . A [out, in]^T
  int64_t out_stride, x_stride;  // elements between rows of C and of B; A is contiguous
  DType type, out_type;
  auto key() const {
    return std::tuple(out, n, in, out_stride, x_stride, int(type), int(out_type));
  }
  bool operator<(const GemmShape& o) const { return key() < o.key(); }
};

class GemmPlans {
 public:
  explicit GemmPlans(const BlasLt& blas) : blas_(blas) {}
  ~GemmPlans() { clear(); }
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
  };
  // DeviceError where cuBLASLt has no kernel.
  const Plan& plan_for(const GemmShape& shape, size_t workspace_bytes);

 private:
  static constexpr size_t kMost = 1024;  // prompts of every length, and it would grow for ever
  void clear();
  void destroy(Plan& plan);
  const BlasLt& blas_;
  std::map<GemmShape, Plan> plans_;
};

// True where the tensors' rows begin at multiples of 16 bytes, which the fast kernels ask for.
bool blas_aligned(const Tensor& t);
// out [N, rows] = x [N, in] . w [rows, in]^T; x and w of one type, bf16 or f16; out that type or
// f32; all blas_aligned, w contiguous.
void blas_gemm(const Context& c, Tensor out, Tensor x, Tensor w);

}  // namespace nibble::cuda

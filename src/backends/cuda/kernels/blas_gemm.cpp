// SPDX-License-Identifier: MIT
#include "backends/cuda/kernels/blas_gemm.h"

#include "backends/cuda/context.h"
#include "core/error.h"

namespace nibble::cuda {
namespace {

cudaDataType blas_type(DType t) {
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

constexpr uint32_t kAlignment = 16;

}  // namespace

const GemmPlans::Plan& GemmPlans::plan_for(const GemmShape& s, size_t workspace_bytes) {
  const auto found = plans_.find(s);
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= kMost) clear();
  // Column by column in cuBLASLt's eyes: C^T [out, n] = A [out, in] . B^T [in, n].
  Plan p;
  cublasLtMatmulPreference_t preference = nullptr;
  try {
    NIBBLE_CUDA(blas_.desc_create(&p.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    NIBBLE_CUDA(
        blas_.desc_set(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    NIBBLE_CUDA(
        blas_.layout_create(&p.a, blas_type(s.type), uint64_t(s.in), uint64_t(s.out), s.in));
    NIBBLE_CUDA(
        blas_.layout_create(&p.b, blas_type(s.type), uint64_t(s.in), uint64_t(s.n), s.x_stride));
    NIBBLE_CUDA(blas_.layout_create(&p.c, blas_type(s.out_type), uint64_t(s.out), uint64_t(s.n),
                                    s.out_stride));
    NIBBLE_CUDA(blas_.preference_create(&preference));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      NIBBLE_CUDA(blas_.preference_set(preference, what, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    for (const auto what :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(what, kAlignment);
    }
    // Sums split along K are added in fp32 and in a fixed order, not by atomics in the output.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    cublasLtMatmulHeuristicResult_t best = {};
    int count = 0;
    const cublasStatus_t status = blas_.heuristic(blas_.handle, p.operation, p.a, p.b, p.c, p.c,
                                                  preference, 1, &best, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
      throw_device("cuBLASLt has no kernel for a product of {} x {} x {} in {} to {} (status {})",
                   s.n, s.out, s.in, dtype_name(s.type), dtype_name(s.out_type), int(status));
    }
    p.algorithm = best.algo;
  } catch (...) {
    if (preference) blas_.preference_destroy(preference);
    destroy(p);
    throw;
  }
  blas_.preference_destroy(preference);
  return plans_.emplace(s, p).first->second;
}

void GemmPlans::destroy(Plan& p) {
  if (p.a) blas_.layout_destroy(p.a);
  if (p.b) blas_.layout_destroy(p.b);
  if (p.c) blas_.layout_destroy(p.c);
  if (p.operation) blas_.desc_destroy(p.operation);
  p = {};
}

void GemmPlans::clear() {
  for (auto& [shape, plan] : plans_) destroy(plan);
  plans_.clear();
}

bool blas_aligned(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.data) % kAlignment == 0 &&
         size_t(t.row_stride) * dtype_bytes(t.dtype) % kAlignment == 0;
}

void blas_gemm(const Context& c, Tensor out, Tensor x, Tensor w) {
  const GemmShape shape{w.dim(0),     x.dim(0), w.dim(1), out.row_stride,
                        x.row_stride, x.dtype,  out.dtype};
  const GemmPlans::Plan& p = c.gemm_plans->plan_for(shape, Context::kBlasBytes);
  const float one = 1, zero = 0;
  NIBBLE_CUDA(c.blas.matmul(c.blas.handle, p.operation, &one, w.data, p.a, x.data, p.b, &zero,
                            out.data, p.c, out.data, p.c, &p.algorithm, c.blas_workspace(),
                            Context::kBlasBytes, c.stream));
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
#include "backends/cuda/kernels/linear/gemm_plans.h"

#include <array>
#include <cstring>
#include <vector>

#include "backends/cuda/kernels/linear/gemm_autotune.h"
#include "core/error.h"

namespace nibble::cuda {
namespace {

cudaDataType blas_type(DType t) {
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

}  // namespace

// Here, where GemmAutotuner is known.
GemmPlans::Plan::Plan() = default;
GemmPlans::Plan::Plan(Plan&&) = default;
GemmPlans::Plan& GemmPlans::Plan::operator=(Plan&&) = default;
GemmPlans::Plan::~Plan() = default;
GemmPlans::GemmPlans(const BlasLt& blas) : blas_(blas) {}
GemmPlans::~GemmPlans() { clear(); }

GemmPlans::Plan& GemmPlans::plan_for(const GemmShape& s, size_t workspace_bytes) {
  const auto found = plans_.find(s);
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= kMost) clear();
  // Column by column in cuBLASLt's eyes: C^T [m, n] = A^T [m, k] . B^T [k, n].
  Plan p;
  try {
    NIBBLE_CUDA(blas_.desc_create(&p.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto layout = [&](cublasLtMatrixLayout_t* out, DType type, int64_t rows, int64_t cols,
                            Order order, int64_t stride) {
      if (order == Order::transposed) std::swap(rows, cols);
      NIBBLE_CUDA(
          blas_.layout_create(out, blas_type(type), uint64_t(rows), uint64_t(cols), stride));
    };
    const auto transpose = [&](cublasLtMatmulDescAttributes_t which, Order order) {
      const cublasOperation_t op = order == Order::transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      NIBBLE_CUDA(blas_.desc_set(p.operation, which, &op, sizeof op));
    };
    layout(&p.a, s.type, s.m, s.k, s.a_order, s.a_stride);
    layout(&p.b, s.type, s.k, s.n, s.b_order, s.b_stride);
    layout(&p.c, s.out_type, s.m, s.n, Order::plain, s.c_stride);
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, s.a_order);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, s.b_order);
    cublasLtMatmulHeuristicResult_t best = {};
    if (ask(p, workspace_bytes, {&best, 1}) == 0) {
      throw_device("cuBLASLt has no kernel for a product of {} x {} x {} in {} to {}", s.n, s.m,
                   s.k, dtype_name(s.type), dtype_name(s.out_type));
    }
    p.algorithm = best.algo;
  } catch (...) {
    destroy(p);
    throw;
  }
  return plans_.emplace(s, std::move(p)).first->second;
}

int GemmPlans::ask(const Plan& p, size_t workspace_bytes,
                   std::span<cublasLtMatmulHeuristicResult_t> answers) const {
  cublasLtMatmulPreference_t preference = nullptr;
  NIBBLE_CUDA(blas_.preference_create(&preference));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                        decltype(blas_.preference_destroy)>
      owner(preference, blas_.preference_destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    NIBBLE_CUDA(blas_.preference_set(preference, what, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  for (const auto what :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(what, kBlasAlignment);
  }
  // Sums split along K are added in fp32 and in a fixed order, not by atomics in the output.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  int count = 0;
  const cublasStatus_t status =
      blas_.heuristic(blas_.handle, p.operation, p.a, p.b, p.c, p.c, preference,
                      int(answers.size()), answers.data(), &count);
  return status == CUBLAS_STATUS_SUCCESS ? count : 0;
}

// Kernels that do not split K add a result's products in one order, whatever their tiles: the same
// bits (a test holds that; seen for all of 520 on an H200).
GemmAutotuner* GemmPlans::autotuner_of(Plan& p, size_t workspace_bytes) {
  if (p.calls == kCallsBeforeAutotune || ++p.calls < kCallsBeforeAutotune) return p.autotuner.get();
  const auto one_sum = [&](const cublasLtMatmulAlgo_t& a) {
    const auto attribute = [&](cublasLtMatmulAlgoConfigAttributes_t which) {
      uint32_t value = 0;
      size_t bytes = 0;
      NIBBLE_CUDA(blas_.algo_get(&a, which, &value, sizeof value, &bytes));
      return value;
    };
    return attribute(CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1 &&
           attribute(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) == CUBLASLT_REDUCTION_SCHEME_NONE;
  };
  if (!one_sum(p.algorithm)) return nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, 8> answers = {};
  const int count = ask(p, workspace_bytes, answers);
  std::vector<cublasLtMatmulAlgo_t> candidates = {p.algorithm};
  for (const cublasLtMatmulHeuristicResult_t& r : std::span(answers).first(size_t(count))) {
    const bool new_one = std::memcmp(&r.algo, &p.algorithm, sizeof r.algo) != 0;
    if (r.state == CUBLAS_STATUS_SUCCESS && new_one && one_sum(r.algo)) {
      candidates.push_back(r.algo);
    }
  }
  if (candidates.size() > 1) p.autotuner = std::make_unique<GemmAutotuner>(std::move(candidates));
  return p.autotuner.get();
}

void GemmPlans::destroy(Plan& p) {
  if (p.a) blas_.layout_destroy(p.a);
  if (p.b) blas_.layout_destroy(p.b);
  if (p.c) blas_.layout_destroy(p.c);
  if (p.operation) blas_.desc_destroy(p.operation);
  p = Plan();
}

void GemmPlans::clear() {
  for (auto& [shape, plan] : plans_) destroy(plan);
  plans_.clear();
}

}  // namespace nibble::cuda

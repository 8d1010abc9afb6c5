// SPDX-License-Identifier: MIT
// The cache of cuBLASLt's plans: heuristics are asked once a shape, and again for autotuning where
// a shape is used often.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include "backends/cuda/blas_lt.h"
#include "core/dtype.h"

namespace nibble::cuda {

class GemmAutotuner;

// Of rows in bytes: what the fast kernels ask for, and all that plans are made for.
constexpr uint32_t kBlasAlignment = 16;

enum class Order { plain, transposed };

// C [n, m] = op(B) . op(A), row by row: op(A) is [k, m], op(B) [n, k]. In memory A is [k, m] when
// plain and [m, k] when transposed, B [n, k] or [k, n]; strides are elements between rows.
struct GemmShape {
  int64_t m, n, k;
  int64_t a_stride, b_stride, c_stride;
  Order a_order, b_order;
  DType type, out_type;
  auto key() const {
    return std::tuple(m, n, k, a_stride, b_stride, c_stride, a_order, b_order, type, out_type);
  }
  bool operator<(const GemmShape& o) const { return key() < o.key(); }
};

class GemmPlans {
 public:
  explicit GemmPlans(const BlasLt& blas);
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  struct Plan {
    Plan();
    Plan(Plan&&);
    Plan& operator=(Plan&&);
    ~Plan();
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    int calls = 0;
    std::unique_ptr<GemmAutotuner> autotuner;
  };
  // DeviceError where cuBLASLt has no kernel.
  Plan& plan_for(const GemmShape& shape, size_t workspace_bytes);
  // Counts a call of a plan; the autotuner of its algorithm, once it is used often.
  GemmAutotuner* autotuner_of(Plan& plan, size_t workspace_bytes);

 private:
  static constexpr size_t kMost = 1024;  // prompts of every length, and it would grow for ever
  // More than the layers of a prompt: a shape that does not come again is not slowed down by
  // tuning.
  static constexpr int kCallsBeforeAutotune = 80;
  // The heuristics' answers, best first; how many there are.
  int ask(const Plan& plan, size_t workspace_bytes,
          std::span<cublasLtMatmulHeuristicResult_t> answers) const;
  void clear();
  void destroy(Plan& plan);
  const BlasLt& blas_;
  std::map<GemmShape, Plan> plans_;
};

}  // namespace nibble::cuda

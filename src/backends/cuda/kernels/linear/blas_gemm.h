// SPDX-License-Identifier: MIT
// GEMMs of 16-bit floats by cuBLASLt with fp32 accumulation, and the cache of its plans: heuristics
// are asked once a shape, and again for autotuning where a shape is used often.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include "backend/backend.h"
#include "backends/cuda/blas_lt.h"
#include "core/tensor.h"

namespace nibble::cuda {

struct Context;
class GemmAutotuner;

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

// True where the tensors' rows begin at multiples of 16 bytes, which the fast kernels ask for.
bool blas_aligned(const Tensor& t);
// All of these: operands of one type, bf16 or f16; the result that type or f32; all blas_aligned.
// out [N, rows] = x [N, in] . w [rows, in]^T
void blas_gemm(const Context& c, Tensor out, Tensor x, Tensor w);
// dx [N, in] = dy [N, rows] . w [rows, in], or added to it
void blas_dgrad(const Context& c, Tensor dx, Tensor dy, Tensor w, Accumulate accumulate);
// dw [rows, in] = dy [N, rows]^T . x [N, in], or added to it
void blas_wgrad(const Context& c, Tensor dw, Tensor dy, Tensor x, Accumulate accumulate);

}  // namespace nibble::cuda

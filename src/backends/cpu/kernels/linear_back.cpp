// SPDX-License-Identifier: MIT
// Gradients of the linear layer: two matrix products.
#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/kernels.h"

namespace nibble::cpu {

using Layout = GemmFactor::Layout;

// dx [N, in] = dy [N, out] . W [out, in]
void linear_dgrad(Context& c, Tensor dx, Tensor dy, const LinearWeight& w, Accumulate accumulate) {
  const GemmFactor a{.layout = Layout::outer_by_k, .outer = dy.dim(0), .k = w.out, .dense = dy};
  GemmFactor b{.layout = w.is_packed() ? Layout::packed_k_by_outer : Layout::k_by_outer,
               .outer = w.in,
               .k = w.out,
               .dense = w.dense};
  if (w.is_packed()) b.packed = w.packed.as<uint8_t>();
  if (w.row_scale) b.k_scale = w.row_scale.as<float>();
  gemm(c, {.c = dx, .accumulate = accumulate}, a, b);
}

// dw [rows, in] = dy^T [rows, N] . x [N, in]
void linear_wgrad(Context& c, Tensor dw, Tensor dy, Tensor x, const GradWrite& write) {
  const GemmFactor a{.layout = Layout::k_by_outer, .outer = dw.dim(0), .k = x.dim(0), .dense = dy};
  const GemmFactor b{.layout = Layout::k_by_outer, .outer = dw.dim(1), .k = x.dim(0), .dense = x};
  GemmOutput out{.c = dw,
                 .accumulate = write.accumulate,
                 .seed = write.seed,
                 .stream = write.stream,
                 .offset = uint64_t(write.offset)};
  if (dw.dtype == DType::bf16) out.rounding = GemmOutput::Rounding::stochastic;
  gemm(c, out, a, b);
}

}  // namespace nibble::cpu

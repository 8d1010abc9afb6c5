// SPDX-License-Identifier: MIT
#include "backends/cuda/kernels/linear/blas_gemm.h"

#include "backends/cuda/context.h"
#include "backends/cuda/kernels/linear/gemm_autotune.h"
#include "backends/cuda/kernels/linear/gemm_plans.h"

namespace nibble::cuda {

bool blas_aligned(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.data) % kBlasAlignment == 0 &&
         size_t(t.row_stride) * dtype_bytes(t.dtype) % kBlasAlignment == 0;
}

namespace {

void product(const Context& c, const GemmShape& shape, Tensor out, Tensor a, Tensor b,
             Accumulate accumulate) {
  GemmPlans::Plan& p = c.gemm_plans->plan_for(shape, Context::kBlasBytes);
  const auto multiply = [&](const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1, beta = accumulate == Accumulate::yes ? 1.0f : 0.0f;
    return c.blas->matmul(c.blas->handle, p.operation, &one, a.data, p.a, b.data, p.b, &beta,
                          out.data, p.c, out.data, p.c, &algorithm, c.blas_workspace(),
                          Context::kBlasBytes, c.stream);
  };
  // Only where it is known that the bits stay, and where events tell times.
  GemmAutotuner* const autotuner = c.device_capability == 90 && !c.capturing
                                       ? c.gemm_plans->autotuner_of(p, Context::kBlasBytes)
                                       : nullptr;
  NIBBLE_CUDA(autotuner ? autotuner->run(c.stream, p.algorithm, multiply) : multiply(p.algorithm));
}

}  // namespace

void blas_gemm(const Context& c, Tensor out, Tensor x, Tensor w) {
  product(c,
          {w.dim(0), x.dim(0), w.dim(1), w.row_stride, x.row_stride, out.row_stride,
           Order::transposed, Order::plain, x.dtype, out.dtype},
          out, w, x, Accumulate::no);
}

void blas_dgrad(const Context& c, Tensor dx, Tensor dy, Tensor w, Accumulate accumulate) {
  product(c,
          {w.dim(1), dy.dim(0), w.dim(0), w.row_stride, dy.row_stride, dx.row_stride, Order::plain,
           Order::plain, dy.dtype, dx.dtype},
          dx, w, dy, accumulate);
}

void blas_wgrad(const Context& c, Tensor dw, Tensor dy, Tensor x, Accumulate accumulate) {
  product(c,
          {x.dim(1), dy.dim(1), x.dim(0), x.row_stride, dy.row_stride, dw.row_stride, Order::plain,
           Order::transposed, x.dtype, dw.dtype},
          dw, x, dy, accumulate);
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// GEMMs of 16-bit floats by cuBLASLt with fp32 accumulation.
#pragma once
#include "backend/backend.h"
#include "core/tensor.h"

namespace nibble::cuda {

struct Context;

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

// SPDX-License-Identifier: MIT
// The products behind linear(), each for the shapes and types its predicate names, and the steps
// they share. Private to the CUDA backend.
#pragma once
#include <string>

#include "backends/cuda/kernels/kernels.h"

namespace nibble::cuda {

inline bool is_half(const Tensor& t) { return t.dtype == DType::bf16 || t.dtype == DType::f16; }

// Scratch of a product: a panel of dequantised weights that stays in the L2 cache between its
// making and its use, then activations rounded through NVFP4, then outputs in fp32 that wait for
// their row scales.
constexpr size_t kPanelBytes = size_t(48) << 20;
constexpr size_t kActivationBytes = size_t(24) << 20;
constexpr size_t kOutputBytes = Context::kScratchBytes - kPanelBytes - kActivationBytes;

// quantize.cu: out [N, in] = x rounded to NVFP4 blocks by rule absmax, same type. The values are
// exact: a code times a scale has six significant bits and lies between 2^-10 and 2688.
void round_activations(const Context& c, Tensor out, Tensor x);

// dequantize.cu: a part of a packed weight as bf16 or f16 [rows, cols], exactly, from row_begin and
// col_begin on; row_begin % 16 == 0, col_begin % 128 == 0, cols % 8 == 0.
void dequantize_panel(const Context& c, Tensor out, const LinearWeight& w, int64_t row_begin,
                      int64_t col_begin = 0);
// out [N, rows] = sums [N, rows] f32 * row_scale.
void scale_columns(const Context& c, Tensor out, Tensor sums, const float* row_scale);

// linear_general.cu: any types and shapes, fp32 arithmetic; an output is the same operations in the
// same order whatever N is.
void linear_general(const Context& c, Tensor out, Tensor x, const LinearWeight& w);

// gemv.cu: packed weights times one token, bf16 or f16; skinny_gemm_mma.cu: times 2 ..
// kSkinnyTokens; skinny_gemm_wgmma.cu: the same with instructions that only compute capability 9.0
// has.
constexpr int64_t kSkinnyTokens = 64;
bool gemv_fits(const Context& c, const LinearWeight& w);
void gemv(const Context& c, Tensor out, Tensor x, const LinearWeight& w);
bool skinny_gemm_mma_fits(const Context& c, int64_t n, const LinearWeight& w);
void skinny_gemm_mma(const Context& c, Tensor out, Tensor x, const LinearWeight& w);
bool skinny_gemm_wgmma_fits(const Context& c, int64_t n, const LinearWeight& w);
void skinny_gemm_wgmma(const Context& c, Tensor out, Tensor x, const LinearWeight& w);
// gate_up, and silu(gate) * up of its rounded values: the bits of linear, swiglu. w.out % 32 == 0.
void gemv_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w);
void skinny_gemm_mma_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x,
                            const LinearWeight& w);
void skinny_gemm_wgmma_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x,
                              const LinearWeight& w);

// dense_gemv.cu: 16-bit dense weights of x's type times one token.
bool dense_gemv_fits(const Tensor& x, const LinearWeight& w);
void dense_gemv(const Context& c, Tensor out, Tensor x, const LinearWeight& w);

// mixed_gemm.cu: packed weights times kSkinnyTokens + 1 .. kMixedGemmTokens tokens in bf16, compute
// capability 9.0. From about 400 tokens on, dequantised weights and cuBLASLt are faster.
constexpr int64_t kMixedGemmTokens = 256;
bool mixed_gemm_fits(const Context& c, const Tensor& out, const Tensor& x, const LinearWeight& w);
void mixed_gemm(const Context& c, Tensor out, Tensor x, const LinearWeight& w);
// mixed_gemm_dgrad.cu: dx = dy w, likewise.
bool mixed_gemm_dgrad_fits(const Context& c, const Tensor& dx, const Tensor& dy,
                           const LinearWeight& w);
void mixed_gemm_dgrad(const Context& c, Tensor dx, Tensor dy, const LinearWeight& w);

// skinny_wgrad.cu: dw = dy^T x of at most kSkinnyWgradTokens tokens in bf16, written once, compute
// capability 9.0; everything as cuBLASLt wants it, which is faster with more tokens.
// squares f64 [multiprocessors .. kMostSquareParts]: parts of the sum of squares of what was
// written; or empty.
constexpr int64_t kSkinnyWgradTokens = 128, kMostSquareParts = 256;
bool skinny_wgrad_fits(const Context& c, const Tensor& dw, const Tensor& x, const GradWrite& write);
void skinny_wgrad(const Context& c, Tensor dw, Tensor squares, Tensor dy, Tensor x);

// The kernel of a product of packed weights with n tokens, for the log.
std::string linear_kernel_name(const Context& c, Activations activations, int64_t n);

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// The linear layer: rounds activations where W4A4 is asked for, then dispatches by number of tokens
// n (docs/cuda.md has the table): 1 gemv.cu, or dense_gemv.cu where weights are not packed; 2-64
// skinny_gemm_wgmma.cu or skinny_gemm_mma.cu, or up to 7 times gemv.cu; 65-256 mixed_gemm.cu on compute capability 9.0; more:
// panels of weights dequantised into scratch memory and cuBLASLt; anything else linear_general.cu.
#include "backends/cuda/kernels/linear/linear.h"

#include <algorithm>

#include "backends/cuda/kernels/linear/blas_gemm.h"
#include "backends/cuda/kernels/linear/fp4_native.h"

namespace nibble::cuda {
namespace {

// `total` in equal parts of at most `most`, rounded up to `multiple`.
int64_t equal_parts(int64_t total, int64_t most, int64_t multiple) {
  const int64_t parts = (total + most - 1) / most;
  return ((total + parts - 1) / parts + multiple - 1) / multiple * multiple;
}

// 16-bit activations times weights that are of the same type or packed, everything aligned.
bool blas_fits(const Tensor& out, const Tensor& x, const LinearWeight& w) {
  return is_half(x) && w.in % 8 == 0 && blas_aligned(out) && blas_aligned(x) &&
         (w.is_packed() || (w.dense.dtype == x.dtype && blas_aligned(w.dense)));
}

// One panel (rows of the weight as 16-bit floats) times all tokens.
void panel_product(const Context& c, Tensor out, Tensor x, Tensor panel, const float* row_scale) {
  if (!row_scale) {
    blas_gemm(c, out, x, panel);
    return;
  }
  // The scale belongs to the sum, before it is rounded to the output's type.
  auto* sums = reinterpret_cast<float*>(c.scratch() + kPanelBytes + kActivationBytes);
  const int64_t rows = panel.dim(0), padded = (rows + 3) / 4 * 4;
  const int64_t piece = std::max<int64_t>(1, int64_t(kOutputBytes / 4) / padded);
  for (int64_t n = 0; n < x.dim(0); n += piece) {
    const int64_t count = std::min(piece, x.dim(0) - n);
    Tensor part = make_tensor(sums, DType::f32, {count, padded});
    Tensor exact = part.columns(0, rows);
    blas_gemm(c, exact, x.slice(n, count), panel);
    scale_columns(c, out.slice(n, count), exact, row_scale);
  }
}

void blas_product(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  const float* row_scale = w.row_scale ? w.row_scale.as<float>() : nullptr;
  // A panel of sums must fit, too, for one token at least.
  int64_t most = int64_t(kOutputBytes / 4);
  if (w.is_packed()) most = std::min(most, int64_t(kPanelBytes) / (2 * w.in));
  most = std::max<int64_t>(kRowPanel, most / kRowPanel * kRowPanel);
  const int64_t step = equal_parts(w.out, most, kRowPanel);
  for (int64_t r = 0; r < w.out; r += step) {
    const int64_t rows = std::min(step, w.out - r);
    Tensor panel;
    if (w.is_packed()) {
      panel = make_tensor(c.scratch(), x.dtype, {rows, w.in});
      dequantize_panel(c, panel, w, r);
    } else {
      panel = w.dense.slice(r, rows);
    }
    panel_product(c, out.columns(r, rows), x, panel, row_scale ? row_scale + r : nullptr);
  }
}

// A product of 2 .. kGemvTokens tokens for which the kernels for few tokens have no room (widths of
// thousands of columns, where blocks have 99 or 163 KiB of shared memory and no clusters to split
// them over) takes a GEMV for each: reading the packed weights eight times is what a panel costs,
// written and read.
constexpr int64_t kGemvTokens = 7;

// The kernel for a product; all but the first two read the packed layout directly.
enum class Path { blas_or_general, dense_gemv, gemv, gemv_each, skinny_mma, skinny_wgmma, mixed_gemm };
Path path_for(const Context& c, const Tensor& out, const Tensor& x, const LinearWeight& w) {
  if (dense_gemv_fits(x, w)) return Path::dense_gemv;
  if (!w.is_packed() || !is_half(x)) return Path::blas_or_general;
  if (x.dim(0) == 1 && gemv_fits(c, w)) return Path::gemv;
  if (skinny_gemm_wgmma_fits(c, x.dim(0), w)) return Path::skinny_wgmma;
  if (skinny_gemm_mma_fits(c, x.dim(0), w)) return Path::skinny_mma;
  if (x.dim(0) <= kGemvTokens && gemv_fits(c, w)) return Path::gemv_each;
  return mixed_gemm_fits(c, out, x, w) ? Path::mixed_gemm : Path::blas_or_general;
}

void product(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  switch (path_for(c, out, x, w)) {
    case Path::dense_gemv: dense_gemv(c, out, x, w); return;
    case Path::gemv: gemv(c, out, x, w); return;
    case Path::gemv_each:
      for (int64_t n = 0; n < x.dim(0); ++n) gemv(c, out.slice(n, 1), x.slice(n, 1), w);
      return;
    case Path::skinny_mma: skinny_gemm_mma(c, out, x, w); return;
    case Path::skinny_wgmma: skinny_gemm_wgmma(c, out, x, w); return;
    case Path::mixed_gemm: mixed_gemm(c, out, x, w); return;
    case Path::blas_or_general: break;
  }
  if (blas_fits(out, x, w) && size_t(2 * w.in * kRowPanel) <= kPanelBytes) {
    blas_product(c, out, x, w);
  } else {
    linear_general(c, out, x, w);
  }
}

}  // namespace

void linear(const Context& c, Tensor out, Tensor x, const LinearWeight& w,
            Activations activations) {
  if (activations == Activations::int8) {
    throw_usage(
        "--activations int8 is a mode of the CPU; on CUDA use bf16 (the default there) or nvfp4");
  }
  if (x.dim(0) == 0 || w.out == 0) return;
  if (activations == Activations::none) {
    product(c, out, x, w);
    return;
  }
  if (native_fp4_fits(c, out, x, w)) {
    native_fp4_product(c, out, x, w);
    return;
  }
  if (c.require_native_fp4) {
    throw_device(
        "--require-native-fp4: a product of {} tokens in {} with {} weights [{}, {}] cannot use "
        "FP4 "
        "tensor cores, which need NVFP4 weights, widths in 32s and bf16 or fp16; without the flag "
        "it is emulated exactly",
        x.dim(0), dtype_name(x.dtype), w.is_packed() ? "NVFP4" : "dense", w.out, w.in);
  }
  const int64_t row_bytes = w.in * int64_t(dtype_bytes(x.dtype));
  const int64_t piece = std::max<int64_t>(1, int64_t(kActivationBytes) / row_bytes);
  for (int64_t n = 0; n < x.dim(0); n += piece) {
    const int64_t count = std::min(piece, x.dim(0) - n);
    Tensor rounded = make_tensor(c.scratch() + kPanelBytes, x.dtype, {count, w.in});
    round_activations(c, rounded, x.slice(n, count));
    product(c, out.slice(n, count), rounded, w);
  }
}

void linear_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                   Activations activations) {
  const int64_t width = act.dim(1);
  if (activations == Activations::none && x.dtype == DType::bf16 && x.dim(0) > 0 && w.out > 0 &&
      w.out % 32 == 0) {
    switch (path_for(c, gate_up, x, w)) {
      case Path::gemv: gemv_swiglu(c, act, gate_up, x, w); return;
      case Path::skinny_mma: skinny_gemm_mma_swiglu(c, act, gate_up, x, w); return;
      case Path::skinny_wgmma: skinny_gemm_wgmma_swiglu(c, act, gate_up, x, w); return;
      case Path::dense_gemv:
      case Path::gemv_each:
      case Path::mixed_gemm:
      case Path::blas_or_general: break;
    }
  }
  linear(c, gate_up, x, w, activations);
  swiglu(c, act, gate_up.columns(0, width), gate_up.columns(width, width));
}

std::string linear_kernel_name(const Context& c, Activations activations, int64_t n) {
  const bool w4a4 = activations == Activations::nvfp4;
  if (w4a4 && native_fp4_device(c) && (c.require_native_fp4 || n > kSkinnyTokens))
    return "native NVFP4 by cuBLASLt";
  std::string name = n == 1               ? "tensor-core matrix-vector kernel on packed NVFP4"
                     : n <= kSkinnyTokens ? "tensor-core kernel for few tokens on packed NVFP4"
                     : c.capability == 90 && n <= kMixedGemmTokens
                         ? "tensor-core kernel for many tokens on packed NVFP4"
                         : "NVFP4 dequantised in panels, then cuBLASLt";
  if (w4a4) name += " (W4A4 emulated exactly: activations rounded to NVFP4)";
  return name;
}

}  // namespace nibble::cuda

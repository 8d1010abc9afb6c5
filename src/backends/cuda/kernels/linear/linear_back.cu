// SPDX-License-Identifier: MIT
// Gradients of the linear layer, dispatch: dx = dy W by mixed_gemm_dgrad.cu (65-256 tokens), panels
// with cuBLASLt, or the fp32 fallback; dw = dy^T x by skinny_wgrad.cu (up to 128 tokens), cuBLASLt,
// or the fallback. The fallback is here: 64 x 64 tiles, 256 threads, fp32 FMA along K in chunks of
// 256 added in order.
#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/grad_write.cuh"
#include "backends/cuda/device_functions/packed_layout.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/linear/blas_gemm.h"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

// --- The fallback: out [I, J] = sum over k of left(i, k) * right(k, j), in fp32 ---
constexpr int kTile = 64, kTileK = 16, kThreads = 256, kChunk = 256;

// left is dy: [I, K] for the gradient of x, [K, I] for that of the weight.
struct Product {
  Tensor out, dy, right;
  const uint8_t* packed;   // right is a packed weight [K, J]; null: it is `right`
  const float* row_scale;  // of the weight's rows, which are k here
  bool dy_transposed;
  int64_t I, J, K;
  GradWrite write;
  bool nearest;  // sums of gradients of activations; those of weights round as GradWrite says
};

__device__ __forceinline__ float element(const Tensor& t, int64_t row, int64_t col) {
  AnyFloats values;
  values.data = t.data, values.type = t.dtype;
  return values[row * t.row_stride + col];
}

__device__ __forceinline__ float right_element(const Product& p, int64_t k, int64_t j) {
  if (!p.packed) return element(p.right, k, j);
  const BlockPlace at = block_place(p.J, k, j / 16);
  const uint32_t word = *reinterpret_cast<const uint32_t*>(p.packed + at.codes + j % 16 / 8 * 4);
  return e2m1_value(uint8_t(code_of(word, int(j % 8)))) * e4m3_value(p.packed[at.scale]);
}

__global__ void __launch_bounds__(kThreads) product_kernel(Product p) {
  pdl_enter();
  __shared__ float left[kTileK][kTile + 1], right[kTileK][kTile];
  const int t = int(threadIdx.x), ti = t / 16 * 4, tj = t % 16 * 4;
  const int64_t i0 = int64_t(blockIdx.y) * kTile, j0 = int64_t(blockIdx.x) * kTile;
  float sum[4][4] = {}, total[4][4] = {};
  for (int64_t k0 = 0; k0 < p.K; k0 += kTileK) {
    __syncthreads();
    for (int e = t; e < kTileK * kTile; e += kThreads) {
      // Neighbouring threads read neighbouring elements of dy.
      const int k = p.dy_transposed ? e / kTile : e % kTileK;
      const int i = p.dy_transposed ? e % kTile : e / kTileK;
      float v = 0;
      if (i0 + i < p.I && k0 + k < p.K) {
        v = p.dy_transposed ? element(p.dy, k0 + k, i0 + i) : element(p.dy, i0 + i, k0 + k);
        if (p.row_scale) v *= p.row_scale[k0 + k];
      }
      left[k][i] = v;
      const int kr = e / kTile, j = e % kTile;
      right[kr][j] = k0 + kr < p.K && j0 + j < p.J ? right_element(p, k0 + kr, j0 + j) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
#pragma unroll
      for (int a = 0; a < 4; ++a) {
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          sum[a][b] = fmaf(left[k][ti + a], right[k][tj + b], sum[a][b]);
        }
      }
    }
    if ((k0 + kTileK) % kChunk == 0 || k0 + kTileK >= p.K) {
#pragma unroll
      for (int a = 0; a < 4; ++a) {
#pragma unroll
        for (int b = 0; b < 4; ++b) total[a][b] += sum[a][b], sum[a][b] = 0;
      }
    }
  }
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      const int64_t i = i0 + ti + a, j = j0 + tj + b;
      if (i >= p.I || j >= p.J) continue;
      const int64_t at = i * p.out.row_stride + j;
      GradWrite write = p.write;
      float value = total[a][b];
      if (p.nearest && write.accumulate == Accumulate::yes) {
        value += element(p.out, i, j);
        write.accumulate = Accumulate::no;
      }
      // The offset counts elements of a contiguous gradient, which a weight's is.
      if (p.out.dtype == DType::bf16) {
        write_gradient(reinterpret_cast<bf16*>(p.out.data), at, value, write);
      } else if (p.out.dtype == DType::f16) {
        write_gradient(reinterpret_cast<f16*>(p.out.data), at, value, write);
      } else {
        write_gradient(reinterpret_cast<float*>(p.out.data), at, value, write);
      }
    }
  }
}

void plain_product(const Context& c, const Product& p) {
  for (const Tensor& t : {p.out, p.dy}) with_float(t.dtype, [](auto) {});
  // blockIdx.y ends at 65535.
  if (p.I > int64_t(65535) * kTile) throw_internal("a gradient product of {} rows", p.I);
  launch(c, {dim3(blocks_for(p.J, kTile), blocks_for(p.I, kTile)), dim3(kThreads)}, product_kernel,
         p);
}

// --- Gradients that wait in fp32 for their rounding ---
template <class D>
__global__ void write_gradient_kernel(D* dw, const float* sums, int64_t n, GradWrite write) {
  pdl_enter();
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) write_gradient(dw, i, sums[i], write);
}

constexpr int64_t kManyRows = 32768;

// Types and alignment of a weight's gradient that cuBLASLt and skinny_wgrad.cu take.
bool blas_takes(const Tensor& dw, const Tensor& dy, const Tensor& x) {
  return is_half(x) && x.dim(0) > 0 && dw.dim(1) % 8 == 0 && dw.dim(0) % 8 == 0 &&
         blas_aligned(x) && blas_aligned(dy) && blas_aligned(dw) && dw.contiguous();
}

// cuBLASLt adds to what is there and rounds to nearest, which is right for everything but sums of
// micro-batches in bf16; and it has no bf16 result for f16 operands.
bool blas_writes(const Tensor& dw, const Tensor& x, const GradWrite& write) {
  if (dw.dtype == DType::f32) return true;
  return dw.dtype == x.dtype && write.accumulate == Accumulate::no;
}

}  // namespace

void linear_dgrad(const Context& c, Tensor dx, Tensor dy, const LinearWeight& w,
                  Accumulate accumulate) {
  if (dx.numel() == 0) return;
  if (accumulate == Accumulate::no && mixed_gemm_dgrad_fits(c, dx, dy, w)) {
    mixed_gemm_dgrad(c, dx, dy, w);
    return;
  }
  const bool fits = is_half(dy) && (dx.dtype == dy.dtype || dx.dtype == DType::f32) &&
                    w.in % 8 == 0 && w.out % 8 == 0 && blas_aligned(dx) && blas_aligned(dy) &&
                    !w.row_scale &&
                    (w.is_packed() ? size_t(2 * std::max(w.in, w.out) * 128) <= kPanelBytes
                                   : w.dense.dtype == dy.dtype && blas_aligned(w.dense));
  if (!fits) {
    GradWrite write;
    write.accumulate = accumulate;
    plain_product(c, {dx, dy, w.dense, w.is_packed() ? w.packed.as<uint8_t>() : nullptr,
                      w.row_scale ? w.row_scale.as<float>() : nullptr, false, dx.dim(0), w.in,
                      w.out, write, true});
    return;
  }
  if (!w.is_packed()) {
    blas_dgrad(c, dx, dy, w.dense, accumulate);
    return;
  }
  // So many rows that a panel of columns would be narrow: panels of rows, added up in fp32.
  if (dx.dtype == DType::f32 && w.out > kManyRows) {
    const int64_t fit = int64_t(kPanelBytes) / (2 * w.in) / kUnitRows * kUnitRows;
    for (int64_t row = 0; row < w.out; row += fit) {
      const int64_t rows = std::min(fit, w.out - row);
      const Tensor panel = make_tensor(c.scratch(), dy.dtype, {rows, w.in});
      dequantize_panel(c, panel, w, row);
      blas_dgrad(c, dx, dy.columns(row, rows), panel, row == 0 ? accumulate : Accumulate::yes);
    }
    return;
  }
  // Panels of columns: each is a whole sum over the weight's rows.
  const int64_t most = int64_t(kPanelBytes) / (2 * w.out) / 128 * 128;
  const int64_t parts = (w.in + most - 1) / most;
  const int64_t step = ((w.in + parts - 1) / parts + 127) / 128 * 128;
  for (int64_t col = 0; col < w.in; col += step) {
    const int64_t cols = std::min(step, w.in - col);
    const Tensor panel = make_tensor(c.scratch(), dy.dtype, {w.out, cols});
    dequantize_panel(c, panel, w, 0, col);
    blas_dgrad(c, dx.columns(col, cols), dy, panel, accumulate);
  }
}

bool linear_wgrad_squares(const Context& c, Tensor dw, Tensor parts, Tensor dy, Tensor x,
                          const GradWrite& write) {
  if (dw.numel() == 0 || !blas_takes(dw, dy, x) || !skinny_wgrad_fits(c, dw, x, write) ||
      parts.numel() < c.sm_count || parts.numel() > kMostSquareParts) {
    return false;
  }
  skinny_wgrad(c, dw, parts, dy, x);
  return true;
}

void linear_wgrad(const Context& c, Tensor dw, Tensor dy, Tensor x, const GradWrite& write) {
  if (dw.numel() == 0) return;
  if (!blas_takes(dw, dy, x)) {
    plain_product(
        c, {dw, dy, x, nullptr, nullptr, true, dw.dim(0), dw.dim(1), x.dim(0), write, false});
    return;
  }
  if (skinny_wgrad_fits(c, dw, x, write)) {
    skinny_wgrad(c, dw, {}, dy, x);
    return;
  }
  if (blas_writes(dw, x, write)) {
    blas_wgrad(c, dw, dy, x, write.accumulate);
    return;
  }
  const int64_t cols = dw.dim(1), rows = dw.dim(0);
  const int64_t piece = std::max<int64_t>(8, int64_t(Context::kScratchBytes / 4) / cols / 8 * 8);
  for (int64_t r = 0; r < rows; r += piece) {
    const int64_t count = std::min(piece, rows - r);
    const Tensor sums = make_tensor(c.scratch(), DType::f32, {count, cols});
    blas_wgrad(c, sums, dy.columns(r, count), x, Accumulate::no);
    GradWrite part = write;
    part.offset += r * cols;
    with_float(dw.dtype, [&](auto t) {
      using D = decltype(t);
      launch(c, {dim3(blocks_for(count * cols, kThreads)), dim3(kThreads)},
             write_gradient_kernel<D>, ptr<D>(dw.slice(r, count)), ptr<const float>(sums),
             count * cols, part);
    });
  }
}

}  // namespace nibble::cuda

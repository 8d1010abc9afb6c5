// SPDX-License-Identifier: MIT
// RMSNorm, alone and after an addition: one block a row.
#include <algorithm>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/reduce.cuh"
#include "backends/cuda/device/types.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

// Rows [row] of a view [n, heads, cols] whose first dimension may be strided.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride, heads, cols;
  __device__ T* at(int64_t row) const { return data + row / heads * stride + row % heads * cols; }
};
template <class T>
HeadRows<T> head_rows(const Tensor& t) {
  return {ptr<T>(t), t.row_stride, t.inner() / t.cols(), t.cols()};
}

// Keeps its part of the row in registers when it fits (kKept packs a thread).
template <int W, class T, bool kAdd>
__global__ void rms_norm_kernel(HeadRows<T> out, AnyFloats rstd, HeadRows<T> sum,
                                HeadRows<const T> a, HeadRows<const T> b, AnyFloats w, float eps) {
  enter();
  constexpr int kKept = 4;
  const int64_t row = blockIdx.x, cols = a.cols;
  const T* x = a.at(row);
  float kept[kKept][W], squares = 0;
  int slot = 0;
  for (int64_t i = int64_t(threadIdx.x) * W; i < cols; i += int64_t(blockDim.x) * W, ++slot) {
    float v[W];
    load_f32<W>(x + i, v);
    if constexpr (kAdd) {
      float y[W];
      load_f32<W>(b.at(row) + i, y);
      // The norm sees the sum as it is stored.
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = to_f32(from_f32<T>(v[k] + y[k]));
      store_f32<W>(sum.at(row) + i, v);
    }
#pragma unroll
    for (int k = 0; k < W; ++k) squares = fmaf(v[k], v[k], squares);
#pragma unroll
    for (int s = 0; s < kKept; ++s) {
      if (s == slot) {
#pragma unroll
        for (int k = 0; k < W; ++k) kept[s][k] = v[k];
      }
    }
  }
  const float scale = 1.0f / sqrtf(block_reduce<Sum>(squares) / float(cols) + eps);
  if (rstd && threadIdx.x == 0) rstd.set(row, scale);
  slot = 0;
  for (int64_t i = int64_t(threadIdx.x) * W; i < cols; i += int64_t(blockDim.x) * W, ++slot) {
    float v[W], g[W];
    if (slot < kKept) {
#pragma unroll
      for (int s = 0; s < kKept; ++s) {
        if (s == slot) {
#pragma unroll
          for (int k = 0; k < W; ++k) v[k] = kept[s][k];
        }
      }
    } else if constexpr (kAdd) {
      load_f32<W>(sum.at(row) + i, v);
    } else {
      load_f32<W>(x + i, v);
    }
#pragma unroll
    for (int k = 0; k < W; ++k) g[k] = w[i + k];
#pragma unroll
    for (int k = 0; k < W; ++k) v[k] = v[k] * scale * g[k];
    store_f32<W>(out.at(row) + i, v);
  }
}

// Heads are summed as norm_rope sums them (heads.cu): by one warp, lane by lane.
unsigned threads_for(int64_t cols, int width) {
  if (cols <= kHeadWidth) return 32;
  const int64_t packs = (cols + width - 1) / width;
  return unsigned(std::clamp<int64_t>((packs + 31) / 32 * 32, 32, 512));
}

template <bool kAdd>
void norm(const Context& c, Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
          double eps) {
  with_float(a.dtype, [&](auto t) {
    using T = decltype(t);
    const auto run = [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch(c, {dim3(unsigned(a.rows())), dim3(threads_for(a.cols(), W))},
             rms_norm_kernel<W, T, kAdd>, head_rows<T>(out), AnyFloats(rstd),
             head_rows<T>(kAdd ? sum : out), head_rows<const T>(a),
             head_rows<const T>(kAdd ? b : a), AnyFloats(w), float(eps));
    };
    if (a.cols() > kHeadWidth && in_eights(out, a, sum, b)) {
      run(std::integral_constant<int, 8>());
    } else {
      run(std::integral_constant<int, 1>());
    }
  });
}

}  // namespace

void rms_norm(const Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) {
  norm<false>(c, out, rstd, {}, x, {}, w, eps);
}

void add_rms_norm(const Context& c, Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b,
                  Tensor w, double eps) {
  norm<true>(c, out, rstd, sum, a, b, w, eps);
}

}  // namespace nibble::cuda

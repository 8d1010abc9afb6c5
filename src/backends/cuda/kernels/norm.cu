// SPDX-License-Identifier: MIT
// RMSNorm, out = x * rsqrt(mean(x^2) + eps) * w, alone and fused with the residual addition before
// it. Order of summation by width alone, so that fused and plain ops, heads.cu and decode/ agree to
// the bit.
//
// wide_norm_kernel: 16-bit rows of up to 4,096 columns in packs of eight; four blocks an SM,
// grid-stride over rows, the next row prefetched. rms_norm_kernel: anything else, one block a row
// (one warp for heads).
//
// Bound by memory: with the addition 2048 rows of 2560 take 11.3 us for 42 MB, of which 26 go to or
// come from HBM, 512 rows 4.3; with a block a row, whose roundings go one by one through the
// special-function unit, 13.6 and 5.2.
#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/raw.cuh"
#include "backends/cuda/device_functions/reduce.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

// Rows [row] of a view [n, heads, cols] whose first dimension may be strided.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride, heads, cols;
  __device__ __forceinline__ T* at(int64_t row) const {
    if (heads == 1)
      return data + row * stride;  // avoids a division, which takes as long as the loads
    return data + row / heads * stride + row % heads * cols;
  }
};
template <class T>
HeadRows<T> head_rows(const Tensor& t) {
  return {ptr<T>(t), t.row_stride, t.inner() / t.cols(), t.cols()};
}

// A thread takes packs of W elements with stride blockDim, whatever the alignment, so that the
// order of summation depends on the width alone. The first kKept packs stay in registers; so does
// the first pack of w, which is a weight and may be read before pdl_wait.
template <int W, bool kAligned, class T, bool kAdd>
__global__ void rms_norm_kernel(HeadRows<T> out, AnyFloats rstd, HeadRows<T> sum,
                                HeadRows<const T> a, HeadRows<const T> b, AnyFloats w, float eps) {
  constexpr int kKept = W == 1 ? 8 : 2;
  const int64_t row = blockIdx.x, cols = a.cols, first = int64_t(threadIdx.x) * W,
                step = int64_t(blockDim.x) * W;
  float weight[W] = {};
  if (first < cols) w.load<W, kAligned>(first, weight);
  const T *const x = a.at(row), *const added = b.at(row);
  T *const total = sum.at(row), *const to = out.at(row);
  pdl_enter();
  float kept[kKept][W], squares = 0;
  const auto take = [&](int64_t i, float(&v)[W]) {
    load_f32_at<W, kAligned>(x + i, v);
    if constexpr (kAdd) {
      float y[W];
      load_f32_at<W, kAligned>(added + i, y);
      // The norm sees the sum as it is stored.
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = to_f32(from_f32<T>(v[k] + y[k]));
      store_f32_at<W, kAligned>(total + i, v);
    }
#pragma unroll
    for (int k = 0; k < W; ++k) squares = fmaf(v[k], v[k], squares);
  };
#pragma unroll
  for (int s = 0; s < kKept; ++s) {
    if (first + s * step < cols) take(first + s * step, kept[s]);
  }
  for (int64_t i = first + kKept * step; i < cols; i += step) {
    float v[W];
    take(i, v);
  }
  const float scale = 1.0f / sqrtf(block_reduce<Sum>(squares) / float(cols) + eps);
  if (rstd && threadIdx.x == 0) rstd.set(row, scale);
  const auto give = [&](int64_t i, const float(&v)[W], const float(&g)[W]) {
    float y[W];
#pragma unroll
    for (int k = 0; k < W; ++k) y[k] = v[k] * scale * g[k];
    store_f32_at<W, kAligned>(to + i, y);
  };
#pragma unroll
  for (int s = 0; s < kKept; ++s) {
    const int64_t i = first + s * step;
    if (i >= cols) continue;
    if (s > 0) w.load<W, kAligned>(i, weight);
    give(i, kept[s], weight);
  }
  for (int64_t i = first + kKept * step; i < cols; i += step) {
    float v[W];
    load_f32_at<W, kAligned>((kAdd ? sum.at(row) : x) + i, v);
    w.load<W, kAligned>(i, weight);
    give(i, v, weight);
  }
}

// Rows of at most one pack of 8 a thread, same bits; loads the next row before it reduces this one.
constexpr int kWide = 8;
constexpr int kWideThreads = 512, kWideBlocks = 4;  // blocks per SM, of 320 threads

template <class T>
struct WideRows {
  T *out, *sum;
  const T *a, *b;
  int64_t out_stride, sum_stride, a_stride, b_stride;
  int rows, cols;
};

template <class T, bool kAdd>
__global__ void __launch_bounds__(kWideThreads, 2)
    wide_norm_kernel(WideRows<T> r, AnyFloats rstd, AnyFloats w, float eps) {
  using Part = Raw<T, kWide>;
  const int at = int(threadIdx.x) * kWide;
  const bool mine = at < r.cols;
  float weight[kWide] = {};
  if (mine) w.load<kWide, true>(at, weight);
  const T *const a = r.a + at, *const b = r.b + at;
  T *const sum = r.sum + at, *const out = r.out + at;
  pdl_enter();
  Part next = {}, next_added = {};
  const auto ask = [&](int row) {
    if (!mine || row >= r.rows) return;
    next = Part::load(a + row * r.a_stride);
    if constexpr (kAdd) next_added = Part::load(b + row * r.b_stride);
  };
  ask(int(blockIdx.x));
  for (int row = int(blockIdx.x); row < r.rows; row += int(gridDim.x)) {
    const Part part = next, added = next_added;
    ask(row + int(gridDim.x));
    float v[kWide], squares = 0;
    part.to_f32(v);
    if constexpr (kAdd) {
      float y[kWide];
      added.to_f32(y);
#pragma unroll
      for (int k = 0; k < kWide; ++k) v[k] += y[k];
      const Part total = Part::from_f32(v);  // the norm sees the sum as it is stored
      if (mine) total.store(sum + row * r.sum_stride);
      total.to_f32(v);
    }
#pragma unroll
    for (int k = 0; k < kWide; ++k) squares = fmaf(v[k], v[k], squares);
    const float scale = 1.0f / sqrtf(block_reduce<Sum>(squares) / float(r.cols) + eps);
    if (rstd && threadIdx.x == 0) rstd.set(row, scale);
#pragma unroll
    for (int k = 0; k < kWide; ++k) v[k] = v[k] * scale * weight[k];
    if (mine) Part::from_f32(v).store(out + row * r.out_stride);
  }
}

// Heads are summed as norm_rope does (heads.cu): by one warp, lane by lane, two or four columns at
// a time where the head is 64 or 128 wide.
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
    const auto run = [&](auto width, auto aligned) {
      constexpr int W = decltype(width)::value;
      launch(c, {dim3(unsigned(a.rows())), dim3(threads_for(a.cols(), W))},
             rms_norm_kernel<W, decltype(aligned)::value, T, kAdd>, head_rows<T>(out),
             AnyFloats(rstd), head_rows<T>(kAdd ? sum : out), head_rows<const T>(a),
             head_rows<const T>(kAdd ? b : a), AnyFloats(w), float(eps));
    };
    const auto packs = [&](auto width) {
      if (in_packs<decltype(width)::value>(out, a, sum, b, w)) {
        run(width, std::true_type());
      } else {
        run(width, std::false_type());
      }
    };
    if (a.cols() == 128) {
      packs(std::integral_constant<int, 4>());
    } else if (a.cols() == 64) {
      packs(std::integral_constant<int, 2>());
    } else if (a.cols() <= kHeadWidth || a.cols() % 8 != 0) {
      run(std::integral_constant<int, 1>(), std::false_type());
    } else if (sizeof(T) == 2 && a.inner() == a.cols() && a.cols() <= kWide * kWideThreads &&
               a.rows() < 1 << 30 && in_packs<8>(out, a, sum, b, w)) {
      if constexpr (sizeof(T) == 2) {  // floats have no such kernel
        const WideRows<T> rows{ptr<T>(out),     ptr<T>(kAdd ? sum : out),
                               ptr<const T>(a), ptr<const T>(kAdd ? b : a),
                               out.row_stride,  sum.row_stride,
                               a.row_stride,    b.row_stride,
                               int(a.rows()),   int(a.cols())};
        const int64_t blocks = std::min<int64_t>(a.rows(), int64_t(kWideBlocks) * c.sm_count);
        launch(c, {dim3(unsigned(blocks)), dim3(threads_for(a.cols(), kWide))},
               wide_norm_kernel<T, kAdd>, rows, AnyFloats(rstd), AnyFloats(w), float(eps));
      }
    } else {
      packs(std::integral_constant<int, 8>());
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

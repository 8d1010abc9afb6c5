// SPDX-License-Identifier: MIT
// RMSNorm, alone and after an addition: one block a row.
#include <algorithm>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/raw.cuh"
#include "backends/cuda/device/reduce.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

// Rows [row] of a view [n, heads, cols] whose first dimension may be strided.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride;
  unsigned heads, cols;
  __device__ __forceinline__ T* at(unsigned row) const {
    if (heads == 1) return data + row * stride;  // a division takes as long as the loads
    return data + row / heads * stride + row % heads * cols;
  }
};
template <class T>
HeadRows<T> head_rows(const Tensor& t) {
  return {ptr<T>(t), t.row_stride, unsigned(t.inner() / t.cols()), unsigned(t.cols())};
}

// Many rows are a matter of how many blocks a multiprocessor can have.
constexpr int kMaxThreads = 512, kBlocks = 4;

// A thread takes packs of W elements in turn, whatever the alignment, so that the order of
// summation depends on the width alone. The first kKept packs stay in registers, and so does the
// first of w, which is a weight and may be read ahead.
template <int W, bool kAligned, class T, bool kAdd>
__global__ void __launch_bounds__(kMaxThreads, kBlocks)
    rms_norm_kernel(HeadRows<T> out, AnyFloats rstd, HeadRows<T> sum, HeadRows<const T> a,
                    HeadRows<const T> b, AnyFloats w, float eps) {
  using Part = Raw<T, W>;
  constexpr int kKept = W == 1 ? 8 : 2;
  const unsigned row = blockIdx.x, cols = a.cols, first = threadIdx.x * W, step = blockDim.x * W;
  float weight[W] = {};
  if (first < cols) w.load<W, kAligned>(first, weight);
  const T *const x = a.at(row), *const added = b.at(row);
  T *const total = sum.at(row), *const to = out.at(row);
  enter();
  float squares = 0;
  const auto take = [&](unsigned i) {
    Part part = Part::template load_at<kAligned>(x + i);
    float v[W];
    if constexpr (kAdd) {
      const Part other = Part::template load_at<kAligned>(added + i);
      float y[W];
      part.to_f32(v), other.to_f32(y);
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] += y[k];
      part = Part::from_f32(v);  // the norm sees the sum as it is stored
      part.template store_at<kAligned>(total + i);
    }
    part.to_f32(v);
#pragma unroll
    for (int k = 0; k < W; ++k) squares = fmaf(v[k], v[k], squares);
    return part;
  };
  Part kept[kKept];
#pragma unroll
  for (int s = 0; s < kKept; ++s) {
    if (first + s * step < cols) kept[s] = take(first + s * step);
  }
  for (unsigned i = first + kKept * step; i < cols; i += step) take(i);
  const float scale = 1.0f / sqrtf(block_reduce<Sum>(squares) / float(cols) + eps);
  if (rstd && threadIdx.x == 0) rstd.set(row, scale);
  const auto give = [&](unsigned i, const Part& part) {
    float v[W];
    part.to_f32(v);
#pragma unroll
    for (int k = 0; k < W; ++k) v[k] = v[k] * scale * weight[k];
    Part::from_f32(v).template store_at<kAligned>(to + i);
  };
#pragma unroll
  for (int s = 0; s < kKept; ++s) {
    const unsigned i = first + s * step;
    if (i >= cols) continue;
    if (s > 0) w.load<W, kAligned>(i, weight);
    give(i, kept[s]);
  }
  for (unsigned i = first + kKept * step; i < cols; i += step) {
    w.load<W, kAligned>(i, weight);
    give(i, Part::template load_at<kAligned>((kAdd ? total : x) + i));
  }
}

// Heads are summed as norm_rope sums them (heads.cu): by one warp, lane by lane, four columns at a
// time where the head is 128 wide.
unsigned threads_for(int64_t cols, int width) {
  if (cols <= kHeadWidth) return 32;
  const int64_t packs = (cols + width - 1) / width;
  return unsigned(std::clamp<int64_t>((packs + 31) / 32 * 32, 32, kMaxThreads));
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
    } else if (a.cols() <= kHeadWidth || a.cols() % 8 != 0) {
      run(std::integral_constant<int, 1>(), std::false_type());
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

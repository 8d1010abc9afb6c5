// SPDX-License-Identifier: MIT
// Gradients of RMSNorm, alone and behind a rotation. The gradient of the weight is summed within
// groups of rows that the shape alone decides, then over the groups in order.
#include <algorithm>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/reduce.cuh"
#include "backends/cuda/device/types.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;

// Element views [n, heads, cols]; only the first dimension may be strided.
struct BackArgs {
  void *dx, *dy, *x, *base;  // base may be null
  int64_t dx_stride, dy_stride, x_stride, base_stride;
  AnyFloats rstd, w, table;  // table: null, or the rotation that came after the norm
  float* partial;            // [groups, cols] or null: dw is not wanted
  int64_t rows, heads, cols, groups;
};

// G threads work on a row together: a warp on heads, the block on wide rows. A thread owns columns
// t, t + G, ... of its group's sum, so nothing is shared but the row's own reduction.
template <class T, class Y, int G>
__global__ void norm_back_kernel(BackArgs a) {
  enter();
  extern __shared__ float sums[];  // [kThreads / G, cols]
  const int t = int(threadIdx.x) % G, group_of_block = int(threadIdx.x) / G;
  const int64_t group = int64_t(blockIdx.x) * (kThreads / G) + group_of_block;
  float* dw = sums + group_of_block * a.cols;
  if (a.partial) {
    for (int64_t i = t; i < a.cols; i += G) dw[i] = 0;
  }
  const int64_t half = a.cols / 2;
  for (int64_t row = group; row < a.rows; row += a.groups) {
    const int64_t token = row / a.heads, at = row % a.heads * a.cols;
    const T* x = static_cast<const T*>(a.x) + token * a.x_stride + at;
    const Y* dy = static_cast<const Y*>(a.dy) + token * a.dy_stride + at;
    const float r = a.rstd[row];
    // The gradient behind the rotation, turned back; rounded as the unfused op would store it.
    const auto gradient = [&](int64_t i) {
      if (!a.table) return to_f32(dy[i]);
      const int64_t k = i < half ? i : i - half;
      const float co = a.table[token * a.cols + k], s = a.table[token * a.cols + half + k];
      const float first = to_f32(dy[k]), second = to_f32(dy[half + k]);
      return to_f32(
          from_f32<Y>(i < half ? fmaf(first, co, second * s) : fmaf(second, co, -(first * s))));
    };
    float dot = 0;
    for (int64_t i = t; i < a.cols; i += G) {
      const float gx = gradient(i) * to_f32(x[i]);
      dot = fmaf(gx, a.w[i], dot);
      if (a.partial) dw[i] = fmaf(gx, r, dw[i]);
    }
    dot = G == 32 ? warp_reduce<Sum>(dot) : block_reduce<Sum>(dot);
    const float share = dot / float(a.cols) * (r * r);
    T* dx = static_cast<T*>(a.dx) + token * a.dx_stride + at;
    const T* base = a.base ? static_cast<const T*>(a.base) + token * a.base_stride + at : nullptr;
    // dx may be dy: with a rotation a thread reads a partner's column, so a warp takes all of its
    // row's gradients before it writes any (32 lanes hold up to 256 columns).
    if (a.table) {
      float kept[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int64_t i = t + k * G;
        kept[k] = i < a.cols ? gradient(i) : 0.0f;
      }
      __syncwarp();
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int64_t i = t + k * G;
        if (i >= a.cols) continue;
        const float through = fmaf(-to_f32(x[i]), share, kept[k] * a.w[i]) * r;
        dx[i] = from_f32<T>(base ? to_f32(base[i]) + through : through);
      }
      __syncwarp();
    } else {
      for (int64_t i = t; i < a.cols; i += G) {
        const float through = fmaf(-to_f32(x[i]), share, gradient(i) * a.w[i]) * r;
        dx[i] = from_f32<T>(base ? to_f32(base[i]) + through : through);
      }
    }
  }
  if (a.partial) {
    for (int64_t i = t; i < a.cols; i += G) a.partial[group * a.cols + i] = dw[i];
  }
}

__global__ void sum_groups_kernel(AnyFloats dw, const float* partial, int64_t groups, int64_t cols,
                                  bool add) {
  wait_for_previous();  // dw is a gradient: what reads it next must not run ahead
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= cols) return;
  float sum = 0;
  for (int64_t g = 0; g < groups; ++g) sum += partial[g * cols + i];
  dw.set(i, add ? dw[i] + sum : sum);
}

void back(const Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
          Tensor base, Tensor table, Accumulate accumulate) {
  BackArgs a;
  a.dx = dx.data, a.dy = dy.data, a.x = x.data, a.base = base ? base.data : nullptr;
  a.dx_stride = dx.row_stride, a.dy_stride = dy.row_stride, a.x_stride = x.row_stride;
  a.base_stride = base ? base.row_stride : 0;
  a.rstd = AnyFloats(rstd), a.w = AnyFloats(w), a.table = AnyFloats(table);
  a.rows = x.rows(), a.cols = x.cols(), a.heads = x.inner() / x.cols();
  const bool heads = a.cols <= kHeadWidth;
  const int64_t per_block = heads ? kThreads / 32 : 1;
  // Enough groups to fill any GPU; few enough that summing them is short.
  const int64_t blocks = std::min<int64_t>((a.rows + per_block - 1) / per_block, heads ? 528 : 264);
  a.groups = blocks * per_block;
  a.partial = dw ? reinterpret_cast<float*>(c.scratch()) : nullptr;
  if (size_t(a.groups * a.cols) * sizeof(float) > Context::kScratchBytes) {
    throw_internal("rms_norm_back: rows of {} do not fit the scratch memory", a.cols);
  }
  if (blocks == 0) {  // no rows: dw is 0, or stays
    if (dw && accumulate == Accumulate::no) {
      NIBBLE_CUDA(cudaMemsetAsync(dw.data, 0, dw.bytes(), c.stream));
    }
    return;
  }
  const size_t shared = size_t(per_block * a.cols) * sizeof(float);
  with_float(x.dtype, [&](auto t) {
    with_float(dy.dtype, [&](auto y) {
      using T = decltype(t);
      using Y = decltype(y);
      const auto run = [&](auto kernel) {
        allow_shared(c, kernel);
        launch(c, {dim3(unsigned(blocks)), dim3(kThreads), shared}, kernel, a);
      };
      heads ? run(norm_back_kernel<T, Y, 32>) : run(norm_back_kernel<T, Y, kThreads>);
    });
  });
  if (dw) {
    launch(c, {dim3(blocks_for(a.cols, 64)), dim3(64)}, sum_groups_kernel, AnyFloats(dw), a.partial,
           a.groups, a.cols, accumulate == Accumulate::yes);
  }
}

}  // namespace

void rms_norm_back(const Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd,
                   Tensor w, Tensor base, Accumulate accumulate) {
  back(c, dx, dw, dy, x, rstd, w, base, {}, accumulate);
}

void norm_rope_back(const Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd,
                    Tensor w, Tensor table, Accumulate accumulate) {
  back(c, dx, dw, dy, x, rstd, w, {}, table, accumulate);
}

}  // namespace nibble::cuda

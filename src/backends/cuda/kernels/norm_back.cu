// SPDX-License-Identifier: MIT
// Gradients of RMSNorm, alone and behind a rotation (QK-norm with RoPE): dx per row, dw summed
// within groups of rows whose number depends on the shape alone, then over the groups in order
// (deterministic, no atomics).
//
// norm_back_own_kernel: a thread owns eight columns, 8 to 32 lanes or the block a row;
// double-buffered loads. norm_back_kernel: any width. sum_groups.cuh: the final reduction of dw.
//
// Bound by memory: 2048 rows of 2560 are 42 MB with the residual, 14 us on an H200, 18 before rows
// were prefetched and rounded by pairs.
#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/raw.cuh"
#include "backends/cuda/device_functions/reduce.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/sum_groups.cuh"
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

// G threads a row: a warp for heads, the block for wide rows. A thread owns columns t, t + G, ...
// of its group's dw, so only the row's own reduction is shared.
template <class T, class Y, int G>
__global__ void norm_back_kernel(BackArgs a) {
  pdl_enter();
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

// Widths divisible by eight: a thread owns eight columns, G threads a row (0: the block), so that a
// row is read once. Rotation partners are in a partner lane.
constexpr int kPerThread = 8, kMostThreads = 512;

// A thread's columns of a row, unconverted.
template <class T, class Y>
struct OwnColumns {
  Raw<T, kPerThread> x;
  Raw<Y, kPerThread> dy;
  float r;
};

template <class T, class Y, int G, bool kAligned>
__global__ void __launch_bounds__(G > 0 ? kThreads : kMostThreads, G > 0 ? 3 : 2)
    norm_back_own_kernel(BackArgs a) {
  pdl_enter();
  const int lanes = G > 0 ? G : int(blockDim.x), t = int(threadIdx.x) % lanes;
  const int own_row = int(threadIdx.x) / lanes, rows_at_once = int(blockDim.x) / lanes;
  const int column = t * kPerThread, cols = int(a.cols), half = cols / 2, heads = int(a.heads);
  const int rows = int(a.rows), step = int(gridDim.x) * rows_at_once;
  const bool inside = column < cols;
  float w[kPerThread] = {}, dw[kPerThread] = {};
  if (inside) a.w.load<kPerThread, false>(column, w);

  const auto at = [&](int token, int row, int64_t stride) {
    return token * stride + (row - token * heads) * cols + column;
  };
  const auto load = [&](int begin) {
    OwnColumns<T, Y> o = {};
    const int row = begin + own_row, token = row / heads;
    if (!inside || row >= rows) return o;
    o.x = Raw<T, kPerThread>::template load_at<kAligned>(static_cast<const T*>(a.x) +
                                                         at(token, row, a.x_stride));
    o.dy = Raw<Y, kPerThread>::template load_at<kAligned>(static_cast<const Y*>(a.dy) +
                                                          at(token, row, a.dy_stride));
    o.r = a.rstd[row];
    return o;
  };
  const auto work = [&](int begin, const OwnColumns<T, Y>& o) {
    const int row = begin + own_row, token = row / heads;
    const bool mine = inside && row < rows;
    Raw<T, kPerThread> base = {};
    if (a.base && mine) {
      base = Raw<T, kPerThread>::template load_at<kAligned>(static_cast<const T*>(a.base) +
                                                            at(token, row, a.base_stride));
    }
    float x[kPerThread], g[kPerThread];
    o.x.to_f32(x), o.dy.to_f32(g);
    if (G > 0 && a.table) {
      // Turned back, and rounded as the unfused op would store it.
      float co[kPerThread] = {}, si[kPerThread] = {};
      const int64_t k = int64_t(token) * cols + (column < half ? column : column - half);
      if (mine) a.table.load<kPerThread, true>(k, co), a.table.load<kPerThread, true>(k + half, si);
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const float other = __shfl_xor_sync(~0u, g[i], G > 0 ? G / 2 : 1);
        const float across = other * si[i];
        g[i] = fmaf(g[i], co[i], column < half ? across : -across);
      }
      round_as<Y>(g);
    }
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const float gx = g[i] * x[i];
      dot = fmaf(gx, w[i], dot);
      dw[i] = fmaf(gx, o.r, dw[i]);
    }
    if constexpr (G > 0) {
#pragma unroll
      for (int d = G / 2; d > 0; d /= 2) dot += __shfl_xor_sync(~0u, dot, d);
    } else {
      dot = block_reduce<Sum>(dot);
    }
    if (!mine) return;
    const float share = dot / float(cols) * (o.r * o.r);
    float through[kPerThread];
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) through[i] = fmaf(-x[i], share, g[i] * w[i]) * o.r;
    if (a.base) {
      float b[kPerThread];
      base.to_f32(b);
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) through[i] = b[i] + through[i];
    }
    Raw<T, kPerThread>::from_f32(through).template store_at<kAligned>(static_cast<T*>(a.dx) +
                                                                      at(token, row, a.dx_stride));
  };
  // Double buffering with two named buffers: a copy from one to the other would wait for the load.
  int begin = int(blockIdx.x) * rows_at_once;
  OwnColumns<T, Y> even = load(begin);
  while (begin < rows) {
    const OwnColumns<T, Y> odd = load(begin + step);
    work(begin, even);
    begin += step;
    if (begin >= rows) break;
    even = load(begin + step);
    work(begin, odd);
    begin += step;
  }
  if (!a.partial) return;
  float* to = a.partial + int64_t(blockIdx.x) * a.cols;
  if constexpr (G == 0) {
    if (inside) store_f32<kPerThread>(to + column, dw);
  } else {
    __shared__ float sums[kThreads * kPerThread];  // [rows_at_once, cols]
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) sums[own_row * a.cols + column + i] = dw[i];
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
      float sum = 0;
      for (int k = 0; k < rows_at_once; ++k) sum += sums[k * a.cols + i];
      to[i] = sum;
    }
  }
}

void back(const Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
          Tensor base, Tensor table, Accumulate accumulate) {
  BackArgs a;
  a.dx = dx.data, a.dy = dy.data, a.x = x.data, a.base = base ? base.data : nullptr;
  a.dx_stride = dx.row_stride, a.dy_stride = dy.row_stride, a.x_stride = x.row_stride;
  a.base_stride = base ? base.row_stride : 0;
  a.rstd = AnyFloats(rstd), a.w = AnyFloats(w), a.table = AnyFloats(table);
  a.rows = x.rows(), a.cols = x.cols(), a.heads = x.inner() / x.cols();
  a.partial = dw ? reinterpret_cast<float*>(c.scratch()) : nullptr;
  // How many threads a row has: those that own eight columns each, or a warp, or a block.
  const bool heads = a.cols <= kHeadWidth;
  const int64_t owners = a.cols % kPerThread == 0 ? a.cols / kPerThread : 0;
  const bool own =
      heads ? owners == 8 || owners == 16 || owners == 32 : owners > 0 && owners <= kMostThreads;
  const int64_t threads = own && !heads ? (owners + 31) / 32 * 32 : kThreads;
  const int64_t per_block = !heads ? 1 : own ? kThreads / owners : kThreads / 32;
  // Enough groups to fill any GPU, three a multiprocessor of the largest; few enough that summing
  // them is short.
  const int64_t blocks = std::min<int64_t>((a.rows + per_block - 1) / per_block, 396);
  a.groups = own ? blocks : blocks * per_block;
  if (size_t(a.groups * a.cols) * sizeof(float) > Context::kScratchBytes) {
    throw_internal("rms_norm_back: rows of {} do not fit the scratch memory", a.cols);
  }
  if (a.rows > int64_t(1) << 30) throw_internal("rms_norm_back: {} rows", a.rows);
  if (blocks == 0) {  // no rows: dw is 0, or stays
    if (dw && accumulate == Accumulate::no) {
      NIBBLE_CUDA(cudaMemsetAsync(dw.data, 0, dw.bytes(), c.stream));
    }
    return;
  }
  const bool aligned = in_packs<kPerThread>(dx, dy, x, base);
  const Grid grid{dim3(unsigned(blocks)), dim3(unsigned(threads))};
  with_float(x.dtype, [&](auto t) {
    with_float(dy.dtype, [&](auto y) {
      using T = decltype(t);
      using Y = decltype(y);
      const auto run = [&](auto kernel) {
        allow_shared(c, kernel);
        const size_t shared = size_t(per_block * a.cols) * sizeof(float);
        launch(c, {grid.blocks, grid.threads, shared}, kernel, a);
      };
      if (!own) {
        heads ? run(norm_back_kernel<T, Y, 32>) : run(norm_back_kernel<T, Y, kThreads>);
      } else {
        const auto run_own = [&](auto is_aligned) {
          constexpr bool kAligned = decltype(is_aligned)::value;
          launch(c, grid,
                 !heads         ? norm_back_own_kernel<T, Y, 0, kAligned>
                 : owners == 8  ? norm_back_own_kernel<T, Y, 8, kAligned>
                 : owners == 16 ? norm_back_own_kernel<T, Y, 16, kAligned>
                                : norm_back_own_kernel<T, Y, 32, kAligned>,
                 a);
        };
        aligned ? run_own(std::true_type()) : run_own(std::false_type());
      }
    });
  });
  if (dw) sum_groups(c, dw, a.partial, a.groups, a.cols, accumulate);
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

// SPDX-License-Identifier: MIT
// Cross-entropy in pieces of the vocabulary (online softmax statistics, then loss and gradient) and
// the L1 loss. One block of 512 threads a token, or per (token, 512 packs of columns) for the
// gradient; sums in a fixed order.
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/reduce.cuh"
#include "backends/cuda/device_functions/rows.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 512;

Grid one_block_a_row(int64_t rows) { return {dim3(unsigned(rows)), dim3(kThreads)}; }

template <class T, int W>
__global__ void softmax_stats_kernel(AnyFloats stats, const T* logits, int64_t stride, int64_t cols,
                                     const int32_t* targets, int64_t v_begin, bool add) {
  pdl_enter();
  const int64_t n = blockIdx.x;
  const T* row = logits + n * stride;
  // Online softmax: a thread rescales its sum whenever its maximum grows.
  float mine = -INFINITY, sum = 0;
  bool bad = false;  // a maximum forgets NaN
  for (int64_t i = int64_t(threadIdx.x) * W; i < cols; i += kThreads * W) {
    float v[W];
    load_f32<W>(row + i, v);
    float grown = mine;
#pragma unroll
    for (int k = 0; k < W; ++k) grown = fmaxf(grown, v[k]), bad |= isnan(v[k]);
    if (grown == -INFINITY) continue;  // nothing but masked ones so far
    if (grown > mine) sum *= expf(mine - grown), mine = grown;
#pragma unroll
    for (int k = 0; k < W; ++k) sum += expf(v[k] - mine);
  }
  float largest = block_reduce<Max>(mine);
  sum = block_reduce<Sum>(mine == -INFINITY ? 0.0f : sum * expf(mine - largest));
  if (__syncthreads_or(bad)) sum = NAN;
  if (threadIdx.x != 0) return;
  const int64_t target = int64_t(targets[n]) - v_begin;
  const bool here = targets[n] >= 0 && target >= 0 && target < cols;
  float at = here ? to_f32(row[target]) : 0.0f;
  if (add) {
    const float old = stats[3 * n], both = fmaxf(old, largest);
    sum = stats[3 * n + 1] * expf(old - both) + sum * expf(largest - both);
    largest = both;
    if (!here) at = stats[3 * n + 2];
  }
  stats.set(3 * n, largest);
  stats.set(3 * n + 1, sum);
  stats.set(3 * n + 2, at);
}

__global__ void cross_entropy_kernel(AnyFloats loss, AnyFloats stats, const int32_t* targets,
                                     int64_t rows) {
  pdl_enter();
  const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= rows) return;
  loss.set(n, targets[n] < 0 ? 0.0f : stats[3 * n] - stats[3 * n + 2] + logf(stats[3 * n + 1]));
}

template <class D, class T, int W>
__global__ void cross_entropy_back_kernel(D* dlogits, int64_t d_stride, const T* logits,
                                          int64_t stride, int64_t cols, AnyFloats stats,
                                          const int32_t* targets, int64_t v_begin, double scale) {
  pdl_enter();
  const int64_t n = blockIdx.x;  // rows may be many: only x reaches that far
  const bool wanted = targets[n] >= 0;
  const int64_t target = int64_t(targets[n]) - v_begin;
  const float largest = stats[3 * n], sum = stats[3 * n + 1];
  const int64_t i = (int64_t(blockIdx.y) * kThreads + threadIdx.x) * W;
  if (i >= cols) return;
  float v[W];
  load_f32<W>(logits + n * stride + i, v);
#pragma unroll
  for (int k = 0; k < W; ++k) {
    const float p = expf(v[k] - largest) / sum;
    v[k] = !wanted ? 0.0f : p * float(scale);
    if (wanted && i + k == target) v[k] = float((double(p) - 1.0) * scale);  // one in a row
  }
  store_f32<W>(dlogits + n * d_stride + i, v);
}

template <class D, class T, class E>
__global__ void l1_kernel(AnyFloats loss, D* dh, int64_t dh_stride, const T* h, int64_t h_stride,
                          const E* table, int64_t table_stride, const int32_t* targets,
                          int64_t cols, float step) {
  pdl_enter();
  const int64_t n = blockIdx.x;
  const int32_t target = targets[n];
  float sum = 0;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    float sign = 0;
    if (target >= 0) {
      const float d = to_f32(h[n * h_stride + i]) - to_f32(table[target * table_stride + i]);
      sum += fabsf(d);
      sign = d > 0 ? step : d < 0 ? -step : 0.0f;
    }
    dh[n * dh_stride + i] = from_f32<D>(sign);
  }
  sum = block_reduce<Sum>(sum);
  if (threadIdx.x == 0) loss.set(n, sum / float(cols));
}

}  // namespace

void softmax_stats(const Context& c, Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                   Accumulate accumulate) {
  with_float(logits.dtype, [&](auto t) {
    using T = decltype(t);
    with_width(
        [&](auto w) {
          launch(c, one_block_a_row(logits.dim(0)), softmax_stats_kernel<T, decltype(w)::value>,
                 AnyFloats(stats), ptr<const T>(logits), logits.row_stride, logits.dim(1),
                 ptr<const int32_t>(targets), v_begin, accumulate == Accumulate::yes);
        },
        logits);
  });
}

void cross_entropy(const Context& c, Tensor loss, Tensor stats, Tensor targets) {
  launch(c, {dim3(blocks_for(loss.numel(), 128)), dim3(128)}, cross_entropy_kernel, AnyFloats(loss),
         AnyFloats(stats), ptr<const int32_t>(targets), loss.numel());
}

void cross_entropy_back(const Context& c, Tensor dlogits, Tensor logits, Tensor stats,
                        Tensor targets, int64_t v_begin, double scale) {
  with_float(dlogits.dtype, [&](auto d) {
    with_float(logits.dtype, [&](auto t) {
      using D = decltype(d);
      using T = decltype(t);
      with_width(
          [&](auto w) {
            constexpr int W = decltype(w)::value;
            const dim3 blocks(unsigned(logits.dim(0)), blocks_for(logits.dim(1), kThreads * W));
            launch(c, {blocks, dim3(kThreads)}, cross_entropy_back_kernel<D, T, W>, ptr<D>(dlogits),
                   dlogits.row_stride, ptr<const T>(logits), logits.row_stride, logits.dim(1),
                   AnyFloats(stats), ptr<const int32_t>(targets), v_begin, scale);
          },
          logits, dlogits);
    });
  });
}

void l1_loss(const Context& c, Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
             double scale) {
  with_float(dh.dtype, [&](auto d) {
    with_float(h.dtype, [&](auto t) {
      with_float(table.dtype, [&](auto e) {
        using D = decltype(d);
        using T = decltype(t);
        using E = decltype(e);
        launch(c, one_block_a_row(h.dim(0)), l1_kernel<D, T, E>, AnyFloats(loss), ptr<D>(dh),
               dh.row_stride, ptr<const T>(h), h.row_stride, ptr<const E>(table), table.row_stride,
               ptr<const int32_t>(targets), h.dim(1), float(scale / double(h.dim(1))));
      });
    });
  });
}

}  // namespace nibble::cuda

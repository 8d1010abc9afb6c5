// SPDX-License-Identifier: MIT
// KL(teacher || model) of rows over a piece of the vocabulary, and its gradient, in one pass: one
// block of 512 threads a row, sums in a fixed order. Both softmaxes by the same operations, so that
// equal logits have equal bits.
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/reduce.cuh"
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 512;

// dlogits null: not wanted.
template <class D, class T, int W>
__global__ void divergence_kernel(AnyFloats loss, Rows<D> dlogits, Rows<const T> logits,
                                  AnyFloats stats, Rows<const T> teacher, AnyFloats teacher_stats,
                                  int64_t cols, float scale, bool add) {
  pdl_enter();
  const int64_t n = blockIdx.x;
  const float own_max = stats[3 * n], own_sum = stats[3 * n + 1];
  const float other_max = teacher_stats[3 * n], other_sum = teacher_stats[3 * n + 1];
  const float gap = logf(other_sum) - logf(own_sum);
  float sum = 0;
  for (int64_t i = int64_t(threadIdx.x) * W; i < cols; i += kThreads * W) {
    float z[W], t[W];
    load_f32<W>(logits.at(n, i), z);
    load_f32<W>(teacher.at(n, i), t);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float a = t[k] - other_max, b = z[k] - own_max;
      const float q = expf(a) / other_sum, p = expf(b) / own_sum;
      if (q != 0.0f) sum += q * ((a - b) - gap);  // what the teacher never says adds nothing
      z[k] = (p - q) * scale;
    }
    if (dlogits.data) store_f32<W>(dlogits.at(n, i), z);
  }
  sum = block_reduce<Sum>(sum);
  if (threadIdx.x == 0) loss.set(n, add ? loss[n] + sum : sum);
}

}  // namespace

void divergence(const Context& c, Tensor loss, Tensor dlogits, Tensor logits, Tensor stats,
                Tensor teacher, Tensor teacher_stats, double scale, Accumulate accumulate) {
  if (logits.dim(0) == 0) return;
  const Tensor out = dlogits ? dlogits : logits;  // for its type and alignment
  with_float(out.dtype, [&](auto d) {
    with_float(logits.dtype, [&](auto t) {
      using D = decltype(d);
      using T = decltype(t);
      with_width(
          [&](auto w) {
            launch(c, {dim3(unsigned(logits.dim(0))), dim3(kThreads)},
                   divergence_kernel<D, T, decltype(w)::value>, AnyFloats(loss),
                   dlogits ? rows_of<D>(dlogits) : Rows<D>{nullptr, 0}, rows_of<const T>(logits),
                   AnyFloats(stats), rows_of<const T>(teacher), AnyFloats(teacher_stats),
                   logits.dim(1), float(scale), accumulate == Accumulate::yes);
          },
          logits, teacher, out);
    });
  });
}

}  // namespace nibble::cuda

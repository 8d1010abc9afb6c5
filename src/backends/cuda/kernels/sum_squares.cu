// SPDX-License-Identifier: MIT
// The sum of squares of a gradient, in double.
#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/types.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;
// Blocks of 2^16 elements, then the blocks in order: the size alone decides the order.
constexpr int64_t kSumBlock = 1 << 16;

__device__ __forceinline__ double block_sum(double v) {
  __shared__ double part[kThreads];
  part[threadIdx.x] = v;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (int(threadIdx.x) < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  return part[0];
}

template <class T>
__global__ void squares_kernel(double* partial, const T* x, int64_t n, bool aligned) {
  constexpr int W = 8;
  enter();
  const int64_t begin = blockIdx.x * kSumBlock, end = min(n, begin + kSumBlock);
  double sum = 0;
  for (int64_t i = begin + int64_t(threadIdx.x) * W; i < end; i += kThreads * W) {
    float v[W];
    if (aligned && i + W <= end) {
      load_f32<W>(x + i, v);
    } else {
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = i + k < end ? to_f32(x[i + k]) : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < W; ++k) sum = fma(double(v[k]), double(v[k]), sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void sum_partials_kernel(double* out, const double* partial, int64_t n) {
  enter();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}
}  // namespace

void sum_squares(const Context& c, Tensor out, Tensor x) {
  const int64_t n = x.numel(), blocks = (n + kSumBlock - 1) / kSumBlock;
  auto* partial = blocks == 1 ? ptr<double>(out) : reinterpret_cast<double*>(c.scratch());
  if (size_t(blocks) * sizeof(double) > Context::kScratchBytes) {
    throw_internal("sum_squares: {} elements", n);
  }
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, {dim3(unsigned(blocks)), dim3(kThreads)}, squares_kernel<T>, partial, ptr<const T>(x),
           n, reinterpret_cast<uintptr_t>(x.data) % 16 == 0);
  });
  if (blocks == 1) return;
  launch(c, {dim3(1), dim3(kThreads)}, sum_partials_kernel, ptr<double>(out), partial, blocks);
}
}  // namespace nibble::cuda

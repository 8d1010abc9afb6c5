// SPDX-License-Identifier: MIT
// The sum of squares of a gradient, in double.
#include <algorithm>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/types.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256, kWidth = 8;
// Pieces of equal size, one a block, then the pieces in order: the size alone decides the order.
// Small pieces, so that tensors of a few million elements occupy the whole GPU; not more than
// kMaxPieces, so that their sums are few loads.
constexpr int64_t kPieceStep = kThreads * kWidth, kMinPiece = 4 * kPieceStep, kMaxPieces = 1024;

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
__global__ void __launch_bounds__(kThreads)
    squares_kernel(double* out, double* partial, unsigned* done, const T* x, int64_t n,
                   int64_t piece, bool aligned) {
  enter();
  const int64_t begin = blockIdx.x * piece, end = min(n, begin + piece);
  double sum = 0;
  const auto add = [&](const float(&v)[kWidth]) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum = fma(double(v[k]), double(v[k]), sum);
  };
  int64_t i = begin + int64_t(threadIdx.x) * kWidth;
  if (aligned) {
    constexpr int kAhead = 4;  // loads in flight
    for (; i + (kAhead - 1) * kPieceStep + kWidth <= end; i += kAhead * kPieceStep) {
      float v[kAhead][kWidth];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) load_f32<kWidth>(x + i + k * kPieceStep, v[k]);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) add(v[k]);
    }
  }
  for (; i < end; i += kPieceStep) {
    float v[kWidth];
    if (aligned && i + kWidth <= end) {
      load_f32<kWidth>(x + i, v);
    } else {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) v[k] = i + k < end ? to_f32(x[i + k]) : 0.0f;
    }
    add(v);
  }
  sum = block_sum(sum);
  __shared__ bool last;  // the block that ends last adds the pieces
  if (threadIdx.x == 0) {
    (gridDim.x == 1 ? out : partial + blockIdx.x)[0] = sum;
    __threadfence();
    last = gridDim.x > 1 && atomicAdd(done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  sum = 0;
#pragma unroll
  for (unsigned k = 0; k < unsigned(kMaxPieces); k += kThreads) {
    const unsigned piece_of = k + threadIdx.x;
    sum += piece_of < gridDim.x ? __ldcg(partial + piece_of) : 0.0;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum, *done = 0;
}
}  // namespace

void sum_squares(const Context& c, Tensor out, Tensor x) {
  const int64_t n = x.numel(), steps = (n + kPieceStep - 1) / kPieceStep;
  const int64_t piece = std::max(kMinPiece, (steps + kMaxPieces - 1) / kMaxPieces * kPieceStep);
  const int64_t blocks = std::max<int64_t>(1, (n + piece - 1) / piece);
  auto* partial = reinterpret_cast<double*>(c.scratch());
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, {dim3(unsigned(blocks)), dim3(kThreads)}, squares_kernel<T>, ptr<double>(out),
           partial, c.counters(), ptr<const T>(x), n, piece,
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0);
  });
}
}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Building blocks of the fallback attention (any type and head width, fp32): one query (or,
// backward, one key) per block. The rows of the other side are taken in blocks of 32, one a lane,
// and assigned to warps by position alone, so a result never depends on the batch.
#pragma once
#include "backends/cuda/device_functions/reduce.cuh"
#include "backends/cuda/kernels/attention/attention_common.cuh"

namespace nibble::cuda {

constexpr int kRowWarps = 4;
constexpr int kRowThreads = 32 * kRowWarps;
constexpr int kPerLane = 8;                // sums a lane keeps: columns lane, lane + 32, ...
constexpr int kPassWidth = 32 * kPerLane;  // wider heads take several passes
constexpr int64_t kMaxWidth = 4096;        // rows of this many floats are kept in shared memory

// Dot product by one lane. Four accumulators for instruction-level parallelism; the order is that
// of the columns, whatever the vector width W.
template <int W, class T>
__device__ __forceinline__ float lane_dot(const float* a, const T* b, int width) {
  float sum[4] = {};
  if constexpr (W > 1) {
    for (int d = 0; d < width; d += W) {
      float x[W];
      load_f32<W>(b + d, x);
#pragma unroll
      for (int i = 0; i < W; ++i) sum[i % 4] = fmaf(a[d + i], x[i], sum[i % 4]);
    }
  } else {
    int d = 0;
    for (; d + 4 <= width; d += 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] = fmaf(a[d + i], to_f32(b[d + i]), sum[i]);
    }
    for (int i = 0; d + i < width; ++i) sum[i] = fmaf(a[d + i], to_f32(b[d + i]), sum[i]);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// acc += the sum over `count` rows of weight[row] * row, where lane j holds the weight and the
// address of row j; columns from `first` on.
template <class T>
__device__ __forceinline__ void add_rows(float (&acc)[kPerLane], float weight, const T* row,
                                         int count, int first, int width) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll 4
  for (int j = 0; j < count; ++j) {
    const float w = __shfl_sync(0xffffffffu, weight, j);
    const T* p = reinterpret_cast<const T*>(
        __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(row), j));
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int d = first + 32 * i + lane;
      if (d < width) acc[i] = fmaf(w, to_f32(p[d]), acc[i]);
    }
  }
}

// A row of floats in shared memory.
template <class T>
__device__ __forceinline__ void load_row(float* to, const T* from, int width) {
  for (int d = int(threadIdx.x); d < width; d += kRowThreads) to[d] = to_f32(from[d]);
}

// to[first + column] = factor * the sum over the warps, in their order, of weight[warp] * acc.
// `partial` is shared, [kRowWarps][kPassWidth].
template <class T>
__device__ __forceinline__ void merge_warps(T* to, const float (&acc)[kPerLane], float weight,
                                            float factor, float (*partial)[kPassWidth], int first,
                                            int width) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) partial[warp][32 * i + lane] = acc[i] * weight;
  __syncthreads();
  for (int d = int(threadIdx.x); d < kPassWidth && first + d < width; d += kRowThreads) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kRowWarps; ++w) sum += partial[w][d];
    to[first + d] = from_f32<T>(sum * factor);
  }
  __syncthreads();
}

// Rows of `t` can be read eight elements at a time.
inline bool rows_in_eights(const Tensor& t) {
  return t.cols() % 8 == 0 && t.row_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(t.data) % (std::min<size_t>(16, 8 * dtype_bytes(t.dtype))) ==
             0;
}

}  // namespace nibble::cuda

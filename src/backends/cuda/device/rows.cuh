// SPDX-License-Identifier: MIT
// Row-strided views for kernels that go through their elements one by one or eight at a time.
#pragma once
#include <algorithm>

#include "backends/cuda/device/types.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {

template <class T>
struct Rows {
  T* data;
  int64_t stride;
  __device__ __forceinline__ T* at(int64_t row, int64_t col) const {
    return data + row * stride + col;
  }
};
template <class T>
Rows<T> rows_of(const Tensor& t) {
  return {ptr<T>(t), t.row_stride};
}

// The threads of a grid walk [n, cols] in packs of W: f(row, col).
template <int W, class F>
__device__ __forceinline__ void for_each_pack(int64_t n, int64_t cols, F&& f) {
  const int64_t per_row = cols / W, packs = n * per_row;
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  if (packs + step < int64_t(1) << 32) {  // a division of 64 bits takes longer than all the rest
    for (uint32_t i = uint32_t(first); i < uint32_t(packs); i += uint32_t(step)) {
      const uint32_t row = i / uint32_t(per_row);
      f(int64_t(row), int64_t(i - row * uint32_t(per_row)) * W);
    }
    return;
  }
  for (int64_t i = first; i < packs; i += step) f(i / per_row, i % per_row * W);
}
inline Grid grid_for_packs(const Context& c, int64_t packs) {
  constexpr int64_t kThreads = 256;
  const int64_t blocks = std::min<int64_t>(blocks_for(packs, kThreads), 32 * c.sm_count);
  return {dim3(unsigned(blocks)), dim3(unsigned(kThreads))};
}

// f(integral_constant W) with the widest packs these tensors allow.
template <class F, class... Tensors>
void with_width(F&& f, const Tensors&... t) {
  if (in_eights(t...)) {
    f(std::integral_constant<int, 8>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Row-strided views and grid-stride loops over packs of W elements, for element-wise kernels.
#pragma once
#include <algorithm>

#include "backends/cuda/device_functions/raw.cuh"
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

// Grid-stride loop over [n, cols] in packs of W, kAtOnce a thread per iteration: all load(row, col)
// come before the first use(row, col, loaded), so that loads overlap. From the end backwards: what
// was written last is what the L2 cache still has.
template <int W, int kAtOnce, class Index, class Load, class Use>
__device__ __forceinline__ void walk_packs(Index packs, Index per_row, Load&& load, Use&& use) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += kAtOnce * step) {
    decltype(load(int64_t(), int64_t())) loaded[kAtOnce];
    Index row[kAtOnce], col[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (i + k * step >= packs) continue;
      const Index pack = packs - 1 - (i + k * step);
      row[k] = pack / per_row, col[k] = (pack - row[k] * per_row) * W;
      loaded[k] = load(int64_t(row[k]), int64_t(col[k]));
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (i + k * step < packs) use(int64_t(row[k]), int64_t(col[k]), loaded[k]);
    }
  }
}
template <int W, int kAtOnce, class Load, class Use>
__device__ __forceinline__ void for_loaded_packs(int64_t n, int64_t cols, Load&& load, Use&& use) {
  const int64_t per_row = cols / W, packs = n * per_row;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  // A division of 64 bits takes longer than all the rest.
  if (packs + kAtOnce * step < int64_t(1) << 32) {
    walk_packs<W, kAtOnce>(uint32_t(packs), uint32_t(per_row), load, use);
  } else {
    walk_packs<W, kAtOnce>(packs, per_row, load, use);
  }
}
// One at a time: f(row, col).
template <int W, class F>
__device__ __forceinline__ void for_each_pack(int64_t n, int64_t cols, F&& f) {
  for_loaded_packs<W, 1>(
      n, cols, [](int64_t, int64_t) { return 0; },
      [&](int64_t row, int64_t col, int) { f(row, col); });
}
inline Grid grid_for_packs(const Context& c, int64_t packs, int at_once = 1, int per_sm = 32) {
  constexpr int64_t kThreads = 256;
  const int64_t blocks =
      std::min<int64_t>(blocks_for(packs, kThreads * at_once), int64_t(per_sm) * c.sm_count);
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

// SPDX-License-Identifier: MIT
// TMA loads (cp.async.bulk.tensor): one thread issues the copy of a box of a tensor into shared
// memory, completion is counted in bytes by an mbarrier (bulk_copy.cuh: mbarrier_arrive_expect_tx).
// Compute capability 9.0; before it nothing here may be reached.
#pragma once
#include <cuda.h>

#include "backends/cuda/device_functions/bulk_copy.cuh"

namespace nibble::cuda {

// The box of `map` (kernels/attention/attention_tensor_maps.h) at column x of head y of row z; what
// lies outside the tensor is filled with zeros and counted, too. The map is a __grid_constant__
// kernel argument.
__device__ __forceinline__ void tma_load_3d(uint32_t to, const CUtensorMap& map, int x, int y,
                                            int z, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
#endif
}
// The 64-column halves of a WgmmaTile, half_bytes apart: rows of one head, kWidth wide, from `row`
// on.
template <int kWidth>
__device__ __forceinline__ void tma_load_head_rows(uint32_t to, uint32_t half_bytes,
                                                   const CUtensorMap& map, int head, int row,
                                                   uint32_t barrier) {
  tma_load_3d(to, map, 0, head, row, barrier);
  if constexpr (kWidth == 128) tma_load_3d(to + half_bytes, map, 64, head, row, barrier);
}

}  // namespace nibble::cuda

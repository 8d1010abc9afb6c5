// SPDX-License-Identifier: MIT
// TMA descriptors (CUtensorMap) of queries, keys and values: [rows, heads, 64 or 128] bf16, in
// boxes of `box_rows` rows by 64 columns of one head, 128-byte swizzle: one half of a WgmmaTile
// (device_functions/wgmma_tiles.cuh).
#pragma once
#include <cuda.h>

#include "backend/backend.h"
#include "backends/cuda/check.h"

namespace nibble::cuda {

// cuTensorMapEncodeTiled; null with an older driver.
inline auto tensor_map_encoder() {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                   const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    NIBBLE_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000,
                                                 cudaEnableDefault, &found));
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(f) : nullptr;
  }();
  return encode;
}

// False: no such map can be made (heads_aligned must hold, too).
inline bool map_heads(CUtensorMap& map, const Tensor& t, unsigned box_rows) {
  const auto encode = tensor_map_encoder();
  const cuuint64_t sizes[3] = {cuuint64_t(t.dim(2)), cuuint64_t(t.dim(1)), cuuint64_t(t.dim(0))};
  const cuuint64_t strides[2] = {cuuint64_t(t.dim(2)) * 2, cuuint64_t(t.row_stride) * 2};
  const cuuint32_t box[3] = {64, 1, box_rows}, steps[3] = {1, 1, 1};
  return encode && encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data, sizes, strides, box,
                          steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace nibble::cuda

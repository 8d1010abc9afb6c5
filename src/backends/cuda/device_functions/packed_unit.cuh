// SPDX-License-Identifier: MIT
// A lane's fragment of one unit of packed weights (packed_layout.cuh): the A operand of mma or
// wgmma before decoding.
#pragma once
#include "backends/cuda/device_functions/packed_layout.cuh"

namespace nibble::cuda {

struct Unit {
  uint4 a0, a1;  // codes of rows g and g + 8
  uint32_t scales;

  __device__ __forceinline__ void load(const uint8_t* p, int lane) {
    a0 = __ldcs(reinterpret_cast<const uint4*>(p) + lane);
    a1 = __ldcs(reinterpret_cast<const uint4*>(p + 512) + lane);
    scales = __ldcs(reinterpret_cast<const uint32_t*>(p + kUnitCodeBytes) + lane);
  }
  __device__ __forceinline__ void clear() {
    a0 = a1 = make_uint4(0, 0, 0, 0);
    scales = 0;
  }
};

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

}  // namespace nibble::cuda

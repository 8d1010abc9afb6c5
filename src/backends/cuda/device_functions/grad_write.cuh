// SPDX-License-Identifier: MIT
// How gradients of weights are stored: written or accumulated (struct GradWrite of backend.h).
#pragma once
#include "backend/backend.h"
#include "backends/cuda/device_functions/types.cuh"
#include "quant/rounding.h"

namespace nibble::cuda {

// Writes, or adds to, element i of a gradient part. Sums in bf16 are rounded stochastically.
template <class D>
__device__ __forceinline__ void write_gradient(D* dw, int64_t i, float value, GradWrite write) {
  if (write.accumulate == Accumulate::no) {
    dw[i] = from_f32<D>(value);
    return;
  }
  const float sum = to_f32(dw[i]) + value;
  if constexpr (std::is_same_v<D, bf16>) {
    const bf16_t rounded =
        stochastic_bf16(sum, random_bits(write.seed, write.stream, uint64_t(write.offset + i)));
    dw[i] = __ushort_as_bfloat16(rounded.bits);
  } else {
    dw[i] = from_f32<D>(sum);
  }
}

}  // namespace nibble::cuda

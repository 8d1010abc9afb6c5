// SPDX-License-Identifier: MIT
// The second half of sums over rows (gradients of norm weights and biases): partial sums of groups
// of rows, whose number depends on shapes alone, are added in order (deterministic, no atomics).
#pragma once
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {

// 32 columns a block, kParts threads a column.
constexpr int kSumParts = 16;
static __global__ void sum_groups_kernel(AnyFloats sums, const float* partial, int64_t groups,
                                         int64_t cols, bool add) {
  pdl_enter();
  __shared__ float parts[kSumParts][32];
  const int lane = int(threadIdx.x) % 32, part = int(threadIdx.x) / 32;
  const int64_t i = int64_t(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (i < cols) {
#pragma unroll 4
    for (int64_t g = part; g < groups; g += kSumParts) sum += partial[g * cols + i];
  }
  parts[part][lane] = sum;
  __syncthreads();
  if (part > 0 || i >= cols) return;
  for (int k = 1; k < kSumParts; ++k) sum += parts[k][lane];
  sums.set(i, add ? sums[i] + sum : sum);
}

// sums [cols] = (or +=) the sum over the groups of partial [groups, cols].
inline void sum_groups(const Context& c, const Tensor& sums, const float* partial, int64_t groups,
                       int64_t cols, Accumulate accumulate) {
  launch(c, {dim3(blocks_for(cols, 32)), dim3(32 * kSumParts)}, sum_groups_kernel, AnyFloats(sums),
         partial, groups, cols, accumulate == Accumulate::yes);
}

}  // namespace nibble::cuda

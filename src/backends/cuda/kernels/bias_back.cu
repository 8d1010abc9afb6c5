// SPDX-License-Identifier: MIT
// The gradient of a bias, db [width] = the sum over rows of dy [N, width]: partial sums of groups
// of rows, then over the groups in order (sum_groups.cuh). Groups and the order within one depend
// on shapes alone.
//
// Grid (256 columns, groups of rows), eight warps that take a group's rows in turn, eight columns a
// lane. Bound by memory: reads dy once.
#include <algorithm>

#include "backends/cuda/device_functions/raw.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/sum_groups.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 8, kOwn = 8, kColumns = 32 * kOwn;  // columns of a lane, of a block
constexpr int64_t kGroupRows = 64, kMaxGroups = 128;

template <class T>
struct ColumnArgs {
  const T* dy;
  int64_t stride;
  float* partial;  // [groups, width]
  int rows, width, rows_of_group;
};

// Rows of whole and aligned packs.
template <class T, bool kAligned>
__global__ void __launch_bounds__(32 * kWarps) column_sums_kernel(ColumnArgs<T> a) {
  pdl_enter();
  __shared__ __align__(16) float sums[kWarps][kColumns];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int block_column = int(blockIdx.x) * kColumns, column = block_column + lane * kOwn;
  const int first = int(blockIdx.y) * a.rows_of_group, end = min(first + a.rows_of_group, a.rows);
  float sum[kOwn] = {};
  if (kAligned ? column < a.width : true) {
#pragma unroll 4
    for (int row = first + warp; row < end; row += kWarps) {
      const T* const from = a.dy + row * a.stride + column;
      float v[kOwn] = {};
      if constexpr (kAligned) {
        Raw<T, kOwn>::load(from).to_f32(v);
      } else {
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
          if (column + k < a.width) v[k] = to_f32(from[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kOwn; ++k) sum[k] += v[k];
    }
  }
  store_f32<kOwn>(&sums[warp][lane * kOwn], sum);
  __syncthreads();
  const int own = block_column + int(threadIdx.x);
  static_assert(kColumns == 32 * kWarps);
  if (own >= a.width) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += sums[w][threadIdx.x];
  a.partial[int64_t(blockIdx.y) * a.width + own] = total;
}

}  // namespace

void bias_back(const Context& c, Tensor db, Tensor dy, Accumulate accumulate) {
  const int64_t rows = dy.dim(0), width = dy.dim(1);
  if (width == 0) return;
  if (rows > INT32_MAX || width > INT32_MAX) throw_internal("bias_back: {} x {}", rows, width);
  // Groups of whole turns of the warps; none where there are no rows, and db is 0, or stays.
  const int64_t most = std::clamp<int64_t>((rows + kGroupRows - 1) / kGroupRows, 1, kMaxGroups);
  const int64_t of_group = ((rows + most - 1) / most + kWarps - 1) / kWarps * kWarps;
  const int64_t groups = of_group == 0 ? 0 : (rows + of_group - 1) / of_group;
  float* const partial = reinterpret_cast<float*>(c.scratch());
  if (size_t(groups * width) * sizeof(float) > Context::kScratchBytes) {
    throw_internal("bias_back: {} columns do not fit the scratch memory", width);
  }
  if (groups > 0) {
    with_float(dy.dtype, [&](auto t) {
      using T = decltype(t);
      const ColumnArgs<T> a{ptr<const T>(dy), dy.row_stride, partial,
                            int(rows),        int(width),    int(of_group)};
      launch(c, {dim3(blocks_for(width, kColumns), unsigned(groups)), dim3(32 * kWarps)},
             in_packs<kOwn>(dy) ? column_sums_kernel<T, true> : column_sums_kernel<T, false>, a);
    });
  }
  sum_groups(c, db, partial, groups, width, accumulate);
}

}  // namespace nibble::cuda

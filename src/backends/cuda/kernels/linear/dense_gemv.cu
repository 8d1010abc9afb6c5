// SPDX-License-Identifier: MIT
// GEMV, y [rows] = W x with dense 16-bit weights of x's type and one token. Chosen by linear() for
// one token of a model that is not quantised; cuBLASLt, made for many tokens, takes the rest.
//
// One row a warp, eight warps a block; a lane takes 16 bytes of every 512, kAhead of them in
// flight, the first before pdl_wait (weights may be read there, x may not). x comes from the L1
// cache. fp32 sums, eight a lane, then a tree over lanes: the order depends on the width alone.
// Bound by memory.
#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/raw.cuh"
#include "backends/cuda/device_functions/reduce.cuh"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 8, kPack = 8, kStep = 32 * kPack;  // columns of a load: of a lane, of a warp
constexpr int kAhead = 4;

template <class T>
struct Job {
  const T *w, *x;
  int64_t w_stride;
  const float* row_scale;  // or null
  AnyFloats out;           // [rows]
  int rows, in;            // in % kPack == 0
};

template <class T>
__global__ void __launch_bounds__(32 * kWarps) dense_gemv_kernel(Job<T> j) {
  using Part = Raw<T, kPack>;
  const int lane = int(threadIdx.x) % 32;
  const int row = int(blockIdx.x) * kWarps + int(threadIdx.x) / 32;
  const bool mine = row < j.rows;
  const T* const w = j.w + int64_t(mine ? row : 0) * j.w_stride + lane * kPack;
  const T* const x = j.x + lane * kPack;
  const int columns = mine ? j.in - lane * kPack : 0;  // from this lane's first on
  Part ahead[kAhead] = {};
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (i * kStep < columns) ahead[i] = Part::load_streaming(w + i * kStep);
  }
  const float scale = j.row_scale && mine ? j.row_scale[row] : 1.0f;
  pdl_enter();
  float sum[kPack] = {};
  for (int at = 0; at < columns; at += kAhead * kStep) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int column = at + i * kStep;
      if (column >= columns) break;
      float a[kPack], b[kPack];
      ahead[i].to_f32(a);
      Part::load(x + column).to_f32(b);
      if (column + kAhead * kStep < columns) {
        ahead[i] = Part::load_streaming(w + column + kAhead * kStep);
      }
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] = fmaf(a[k], b[k], sum[k]);
    }
  }
  const float all = warp_reduce<Sum>(((sum[0] + sum[1]) + (sum[2] + sum[3])) +
                                     ((sum[4] + sum[5]) + (sum[6] + sum[7])));
  if (lane == 0 && mine) j.out.set(row, j.row_scale ? all * scale : all);
}

}  // namespace

bool dense_gemv_fits(const Tensor& x, const LinearWeight& w) {
  return !w.is_packed() && x.dim(0) == 1 && is_half(x) && w.dense.dtype == x.dtype &&
         w.out < (int64_t(1) << 30) && w.in < (int64_t(1) << 30) && in_packs<kPack>(w.dense) &&
         w.in % kPack == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

void dense_gemv(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  const auto run = [&](auto t) {
    using T = decltype(t);
    const Job<T> j{ptr<const T>(w.dense),
                   ptr<const T>(x),
                   w.dense.row_stride,
                   w.row_scale ? ptr<const float>(w.row_scale) : nullptr,
                   AnyFloats(out),
                   int(w.out),
                   int(w.in)};
    launch(c, {dim3(blocks_for(w.out, kWarps)), dim3(32 * kWarps)}, dense_gemv_kernel<T>, j);
  };
  x.dtype == DType::bf16 ? run(bf16{}) : run(f16{});
}

}  // namespace nibble::cuda

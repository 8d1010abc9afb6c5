// SPDX-License-Identifier: MIT
// Fallback GEMM, out [n, rows] = x W^T in fp32 FMA for any types, shapes and packed weights: for
// correctness, not speed. Tiles of 64 outputs x 16 or 64 tokens, 256 threads, K steps of 16 through
// shared memory. An output is FMAs along K in chunks of kChunk, the chunks added in order, so it
// does not depend on n, the tile or the position (batch invariant).
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/packed_layout.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kTileOut = 64, kTileK = 16, kThreads = 256;
constexpr int kChunk = 256;

// A matrix whose type is known at run time: one body serves all types.
struct View {
  AnyFloats values;
  int64_t stride = 0;
  __device__ float at(int64_t row, int64_t col) const { return values[row * stride + col]; }
  View from_row(int64_t row) const {
    View v = *this;
    v.values.data =
        static_cast<char*>(values.data) + row * stride * int64_t(dtype_bytes(values.type));
    return v;
  }
};
View view(const Tensor& t) { return {AnyFloats(t), t.row_stride}; }

struct Problem {
  View x, w, out;
  const uint8_t* packed;  // or null: w
  const float* row_scale;
  int64_t n, rows, in;
};

__device__ __forceinline__ void put(const Problem& p, int64_t n, int64_t row, float v) {
  if (p.row_scale) v *= p.row_scale[row];
  p.out.values.set(n * p.out.stride + row, v);
}

// Four consecutive columns of a row of the weight.
template <bool kPacked>
__device__ __forceinline__ void load_weights(const Problem& p, int64_t row, int64_t k,
                                             float (&v)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = 0;
  if (row >= p.rows || k >= p.in) return;
  if constexpr (kPacked) {
    const BlockPlace at = block_place(p.in, row, k / 16);
    const uint32_t word = *reinterpret_cast<const uint32_t*>(p.packed + at.codes + k % 16 / 8 * 4);
    const float s = e4m3_value(p.packed[at.scale]);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = e2m1_value(uint8_t(code_of(word, int(k % 8) + i))) * s;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (k + i < p.in) v[i] = p.w.at(row, k + i);
    }
  }
}

// kTokens x 64 outputs a block; a thread kTokens / 16 x 4 of them.
template <bool kPacked, int kTokens>
__global__ void __launch_bounds__(kThreads) general_kernel(Problem p) {
  pdl_enter();
  constexpr int kPer = kTokens / 16;
  __shared__ float xs[kTileK][kTokens + 1], ws[kTileK][kTileOut + 4];
  const int t = int(threadIdx.x);
  const int64_t row0 = int64_t(blockIdx.x) * kTileOut, n0 = int64_t(blockIdx.y) * kTokens;
  const int tx = t % 16, ty = t / 16;  // rows 4 tx .., tokens kPer ty ..
  float acc[kPer][4] = {}, total[kPer][4] = {};
  for (int64_t k0 = 0; k0 < p.in; k0 += kTileK) {
    float wv[4], xv[kPer];
    load_weights<kPacked>(p, row0 + t / 4, k0 + t % 4 * 4, wv);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int e = t + i * kThreads;
      const int64_t n = n0 + e / kTileK, k = k0 + e % kTileK;
      xv[i] = n < p.n && k < p.in ? p.x.at(n, k) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) ws[t % 4 * 4 + i][t / 4] = wv[i];
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int e = t + i * kThreads;
      xs[e % kTileK][e / kTileK] = xv[i];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          acc[i][j] = fmaf(xs[k][ty * kPer + i], ws[k][tx * 4 + j], acc[i][j]);
        }
      }
    }
    if ((k0 + kTileK) % kChunk == 0 || k0 + kTileK >= p.in) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) total[i][j] += acc[i][j], acc[i][j] = 0;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t n = n0 + ty * kPer + i, row = row0 + tx * 4 + j;
      if (n < p.n && row < p.rows) put(p, n, row, total[i][j]);
    }
  }
}

template <bool kPacked>
void run(const Context& c, const Problem& p) {
  const auto go = [&](auto tokens) {
    constexpr int kTokens = decltype(tokens)::value;
    // blockIdx.y ends at 65535.
    constexpr int64_t kMost = int64_t(65535) * kTokens;
    for (int64_t n = 0; n < p.n; n += kMost) {
      Problem part = p;
      part.n = std::min(kMost, p.n - n);
      part.x = p.x.from_row(n);
      part.out = p.out.from_row(n);
      launch(c, {dim3(blocks_for(p.rows, kTileOut), blocks_for(part.n, kTokens)), dim3(kThreads)},
             general_kernel<kPacked, kTokens>, part);
    }
  };
  if (p.n <= 16) {
    go(std::integral_constant<int, 16>());
  } else {
    go(std::integral_constant<int, 64>());
  }
}

}  // namespace

void linear_general(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  for (const Tensor& t : {out, x}) with_float(t.dtype, [](auto) {});
  Problem p = {};
  p.x = view(x);
  if (w.is_packed()) {
    p.packed = w.packed.as<uint8_t>();
  } else {
    with_float(w.dense.dtype, [](auto) {});
    p.w = view(w.dense);
  }
  p.row_scale = w.row_scale ? ptr<const float>(w.row_scale) : nullptr;
  p.out = view(out);
  p.n = x.dim(0), p.rows = w.out, p.in = w.in;
  if (w.is_packed()) {
    run<true>(c, p);
  } else {
    run<false>(c, p);
  }
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// RoPE table, QK-norm with RoPE, and the append to the KV cache, as ops of their own;
// split_heads.cu fuses the last two. (RoPE without a norm: rotate_heads.cu.) One warp per head, at
// most kHeadWidth wide, eight warps a block.
#include <algorithm>
#include <cmath>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/rotate_head.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 8;

Grid warps_for(int64_t count) { return {dim3(blocks_for(count, kWarps)), dim3(32 * kWarps)}; }
__device__ __forceinline__ int64_t warp_index() {
  return int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
}

// cos and sin in double: at position 100,000 float angles are off by 0.006 rad.
struct TurnsOfPairs {
  static constexpr int kPairs = 128;
  int64_t begin, count;
  double factor;
  double turns[kPairs];
};

// Pairs [begin, begin + count) of `half`.
__global__ void rope_table_kernel(AnyFloats table, const int32_t* positions, int64_t n,
                                  int64_t half, TurnsOfPairs pairs) {
  pdl_enter();
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n * pairs.count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t row = i / pairs.count, k = i % pairs.count;
    double s, co;
    sincos(double(positions[row]) * pairs.turns[k], &s, &co);
    table.set(row * 2 * half + pairs.begin + k, float(pairs.factor * co));
    table.set(row * 2 * half + half + pairs.begin + k, float(pairs.factor * s));
  }
}

struct HeadArgs {
  AnyFloats rstd;  // of all heads, or null
  AnyFloats weight, table;
  int64_t width;
  float eps;
};

// A head of 128, with the bits of split_heads.cu; both half-warps do the same.
template <class T>
__device__ __forceinline__ void head_of_128(T* out, int64_t index, const T* x, int64_t token,
                                            const HeadArgs& h) {
  const int at = HalfWarpHead<128>::column();
  HalfWarpHead<128> y;
  float cosine[4], sine[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) load_f32_at<4, false>(x + 64 * half + at, y.v[half]);
  h.table.load<4, false>(token * 128 + at, cosine);
  h.table.load<4, false>(token * 128 + 64 + at, sine);
  float weight[2][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) h.weight.load<4, false>(64 * half + at, weight[half]);
  const float scale = y.normalise<T>(weight, h.eps);
  if (h.rstd && threadIdx.x % 32 == 0) h.rstd.set(index, scale);
  y.rotate(cosine, sine);
  __syncwarp();  // out may be x
  if (threadIdx.x % 32 >= 16) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) store_f32_at<4, false>(out + 64 * half + at, y.v[half]);
}

// A head of 64, with the bits of attention_decode_many.cu and decode/.
template <class T>
__device__ __forceinline__ void head_of_64(T* out, int64_t index, const T* x, int64_t token,
                                           const HeadArgs& h) {
  const int at = 2 * (int(threadIdx.x) % 32);
  const HeadFactors<64> factors(h.weight, h.table, token);
  float v[2];
  load_f32_at<2, false>(x + at, v);
  const float scale = normalise_head<T>(v, factors, h.eps);
  if (h.rstd && threadIdx.x % 32 == 0) h.rstd.set(index, scale);
  rotate_head(v, factors);  // shuffles: out may be x
  store_f32_at<2, false>(out + at, v);
}

// One head by one warp, number `index` of all, normalised, then rotated by the token's row of the
// table: cosines, then sines. out may be x: a lane reads only what it writes,
// after a shuffle.
template <class T>
__device__ __forceinline__ void one_head(T* out, int64_t index, const T* x, int64_t token,
                                         const HeadArgs& h) {
  if (h.width == 128) {
    head_of_128(out, index, x, token, h);
    return;
  }
  if (h.width == 64) {
    head_of_64(out, index, x, token, h);
    return;
  }
  const int lane = int(threadIdx.x) % 32;
  const int64_t half = h.width / 2;
  float squares = 0;
  for (int64_t i = lane; i < h.width; i += 32) {
    const float v = to_f32(x[i]);
    squares = fmaf(v, v, squares);
  }
  const float scale = 1.0f / sqrtf(warp_reduce<Sum>(squares) / float(h.width) + h.eps);
  if (h.rstd && lane == 0) h.rstd.set(index, scale);
  for (int64_t i = lane; i < half; i += 32) {
    // Rounded as the norm alone would store it.
    const float a = to_f32(from_f32<T>(to_f32(x[i]) * scale * h.weight[i]));
    const float b = to_f32(from_f32<T>(to_f32(x[half + i]) * scale * h.weight[half + i]));
    const float co = h.table[token * h.width + i], s = h.table[token * h.width + half + i];
    out[i] = from_f32<T>(fmaf(a, co, -(b * s)));
    out[half + i] = from_f32<T>(fmaf(b, co, a * s));
  }
}

template <class T>
__global__ void norm_rope_kernel(T* out, int64_t out_stride, const T* x, int64_t x_stride,
                                 int64_t n, int64_t heads, HeadArgs h) {
  pdl_enter();
  const int64_t i = warp_index();
  if (i >= n * heads) return;
  const int64_t token = i / heads, head = i % heads;
  one_head(out + token * out_stride + head * h.width, i, x + token * x_stride + head * h.width,
           token, h);
}

template <class T, class K>
__global__ void kv_append_kernel(K* k_out, int64_t k_out_stride, K* v_out, int64_t v_out_stride,
                                 const T* k, int64_t k_stride, const T* v, int64_t v_stride,
                                 const int32_t* slots, int64_t n, int64_t inner) {
  pdl_enter();
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n * inner;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t token = i / inner, e = i % inner, slot = slots[token];
    k_out[slot * k_out_stride + e] = from_f32<K>(to_f32(k[token * k_stride + e]));
    v_out[slot * v_out_stride + e] = from_f32<K>(to_f32(v[token * v_stride + e]));
  }
}

}  // namespace

void rope_table(const Context& c, Tensor table, Tensor positions, const RopeFrequencies& f) {
  const int64_t n = table.dim(0), half = table.dim(1) / 2;
  for (int64_t begin = 0; begin < half; begin += TurnsOfPairs::kPairs) {
    TurnsOfPairs pairs{begin, std::min<int64_t>(TurnsOfPairs::kPairs, half - begin), f.factor, {}};
    std::copy_n(f.turns.begin() + begin, pairs.count, pairs.turns);
    launch(c, {dim3(blocks_for(n * pairs.count, 64)), dim3(64)}, rope_table_kernel,
           AnyFloats(table), ptr<const int32_t>(positions), n, half, pairs);
  }
}

void norm_rope(const Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table,
               double eps) {
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    const HeadArgs h{AnyFloats(rstd), AnyFloats(w), AnyFloats(table), x.dim(2), float(eps)};
    launch(c, warps_for(x.rows()), norm_rope_kernel<T>, ptr<T>(out), out.row_stride,
           ptr<const T>(x), x.row_stride, x.dim(0), x.dim(1), h);
  });
}

void kv_append(const Context& c, KvView kv, Tensor k, Tensor v, Tensor slots) {
  if (kv.k.data == k.data && kv.v.data == v.data) return;  // training: it is there already
  with_float(k.dtype, [&](auto t) {
    with_cache_type(kv.k.dtype, [&](auto u) {
      using T = decltype(t);
      using K = decltype(u);
      launch(c, {dim3(blocks_for(k.numel(), 256)), dim3(256)}, kv_append_kernel<T, K>, ptr<K>(kv.k),
             kv.k.row_stride, ptr<K>(kv.v), kv.v.row_stride, ptr<const T>(k), k.row_stride,
             ptr<const T>(v), v.row_stride, ptr<const int32_t>(slots), k.dim(0), k.inner());
    });
  });
}

}  // namespace nibble::cuda

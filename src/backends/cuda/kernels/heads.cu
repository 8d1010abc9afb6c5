// SPDX-License-Identifier: MIT
// What happens to queries, keys and values between projection and attention: QK-norm, rotation, the
// way into the cache. One warp a head of a token.
#include <cmath>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/reduce.cuh"
#include "backends/cuda/device/types.cuh"
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
__global__ void rope_table_kernel(AnyFloats table, const int32_t* positions, int64_t n,
                                  int64_t half, double log_theta) {
  enter();
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n * half;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t row = i / half, k = i % half;
    double s, co;
    sincos(double(positions[row]) * exp(-log_theta * double(k) / double(half)), &s, &co);
    table.set(row * 2 * half + k, float(co));
    table.set(row * 2 * half + half + k, float(s));
  }
}

// One head, number `index` of all, normalised if `weight` is given, then rotated by the token's row
// of `table`: cosines, then sines. out may be x: a lane reads only what it writes, after a shuffle.
template <class T, class O>
__device__ __forceinline__ void one_head(O* out, AnyFloats rstd, int64_t index, const T* x,
                                         AnyFloats weight, AnyFloats table, int64_t token,
                                         int64_t width, float eps, float sign) {
  const int lane = int(threadIdx.x) % 32;
  const int64_t half = width / 2;
  float scale = 1;
  if (weight) {
    float squares = 0;
    for (int64_t i = lane; i < width; i += 32) {
      const float v = to_f32(x[i]);
      squares = fmaf(v, v, squares);
    }
    scale = 1.0f / sqrtf(warp_reduce<Sum>(squares) / float(width) + eps);
    if (rstd && lane == 0) rstd.set(index, scale);
  }
  for (int64_t i = lane; i < half; i += 32) {
    float a = to_f32(x[i]), b = to_f32(x[half + i]);
    if (weight) {  // rounded as the norm alone would store it
      a = to_f32(from_f32<T>(a * scale * weight[i]));
      b = to_f32(from_f32<T>(b * scale * weight[half + i]));
    }
    const float co = table[token * width + i], s = sign * table[token * width + half + i];
    out[i] = from_f32<O>(fmaf(a, co, -(b * s)));
    out[half + i] = from_f32<O>(fmaf(b, co, a * s));
  }
}

template <class T>
__global__ void norm_rope_kernel(T* out, int64_t out_stride, AnyFloats rstd, const T* x,
                                 int64_t x_stride, AnyFloats weight, AnyFloats table, int64_t n,
                                 int64_t heads, int64_t width, float eps, float sign) {
  enter();
  const int64_t i = warp_index();
  if (i >= n * heads) return;
  const int64_t token = i / heads, head = i % heads;
  one_head(out + token * out_stride + head * width, rstd, i, x + token * x_stride + head * width,
           weight, table, token, width, eps, sign);
}

template <class T, class K>
__global__ void kv_append_kernel(K* k_out, int64_t k_out_stride, K* v_out, int64_t v_out_stride,
                                 const T* k, int64_t k_stride, const T* v, int64_t v_stride,
                                 const int32_t* slots, int64_t n, int64_t inner) {
  enter();
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n * inner;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t token = i / inner, e = i % inner, slot = slots[token];
    k_out[slot * k_out_stride + e] = from_f32<K>(to_f32(k[token * k_stride + e]));
    v_out[slot * v_out_stride + e] = from_f32<K>(to_f32(v[token * v_stride + e]));
  }
}

template <class T, class K>
struct SplitArgs {
  T *q, *k;
  AnyFloats q_rstd, k_rstd;
  K *cache_k, *cache_v;  // null: they are k, and v's place in qkv (training)
  int64_t cache_k_stride, cache_v_stride;
  const T* qkv;
  int64_t qkv_stride;
  AnyFloats q_norm, k_norm, table;
  const int32_t* slots;
  int64_t n, q_heads, kv_heads, width;
  float eps;
};

template <class T, class K>
__global__ void split_heads_kernel(SplitArgs<T, K> a) {
  enter();
  const int64_t heads = a.q_heads + 2 * a.kv_heads, i = warp_index();
  if (i >= a.n * heads) return;
  const int64_t token = i / heads;
  int64_t head = i % heads;
  const T* x = a.qkv + token * a.qkv_stride + head * a.width;
  if (head < a.q_heads) {
    const int64_t at = token * a.q_heads + head;
    one_head(a.q + at * a.width, a.q_rstd, at, x, a.q_norm, a.table, token, a.width, a.eps, 1.0f);
    return;
  }
  const int64_t slot = a.slots[token];
  head -= a.q_heads;
  if (head < a.kv_heads) {
    const int64_t at = token * a.kv_heads + head;
    T* k = a.k + at * a.width;
    one_head(k, a.k_rstd, at, x, a.k_norm, a.table, token, a.width, a.eps, 1.0f);
    if (!a.cache_k) return;
    __syncwarp();
    K* cached = a.cache_k + slot * a.cache_k_stride + head * a.width;
    for (int64_t e = threadIdx.x % 32; e < a.width; e += 32) cached[e] = from_f32<K>(to_f32(k[e]));
    return;
  }
  head -= a.kv_heads;
  if (!a.cache_v) return;
  K* cached = a.cache_v + slot * a.cache_v_stride + head * a.width;
  for (int64_t e = threadIdx.x % 32; e < a.width; e += 32) cached[e] = from_f32<K>(to_f32(x[e]));
}

}  // namespace

void rope_table(const Context& c, Tensor table, Tensor positions, double theta) {
  const int64_t n = table.dim(0), half = table.dim(1) / 2;
  launch(c, {dim3(blocks_for(n * half, 64)), dim3(64)}, rope_table_kernel, AnyFloats(table),
         ptr<const int32_t>(positions), n, half, std::log(theta));
}

void norm_rope(const Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table,
               double eps) {
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, warps_for(x.rows()), norm_rope_kernel<T>, ptr<T>(out), out.row_stride,
           AnyFloats(rstd), ptr<const T>(x), x.row_stride, AnyFloats(w), AnyFloats(table), x.dim(0),
           x.dim(1), x.dim(2), float(eps), 1.0f);
  });
}

void rope(const Context& c, Tensor out, Tensor x, Tensor table, Rotation rotation) {
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, warps_for(x.rows()), norm_rope_kernel<T>, ptr<T>(out), out.row_stride, AnyFloats(),
           ptr<const T>(x), x.row_stride, AnyFloats(), AnyFloats(table), x.dim(0), x.dim(1),
           x.dim(2), 0.0f, rotation == Rotation::forward ? 1.0f : -1.0f);
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

void split_heads(const Context& c, const HeadSlots& out, KvView kv, Tensor qkv,
                 const HeadNorms& norms, Tensor table, Tensor slots, double eps) {
  with_float(qkv.dtype, [&](auto t) {
    with_cache_type(kv.k.dtype, [&](auto u) {
      using T = decltype(t);
      using K = decltype(u);
      SplitArgs<T, K> a;
      a.q = ptr<T>(out.q), a.k = ptr<T>(out.k);
      a.q_rstd = AnyFloats(out.q_rstd), a.k_rstd = AnyFloats(out.k_rstd);
      const std::byte* values = qkv.data + (out.q.inner() + out.k.inner()) * int64_t(sizeof(T));
      a.cache_k = kv.k.data == out.k.data ? nullptr : ptr<K>(kv.k);
      a.cache_v = kv.v.data == values ? nullptr : ptr<K>(kv.v);
      a.cache_k_stride = kv.k.row_stride, a.cache_v_stride = kv.v.row_stride;
      a.qkv = ptr<const T>(qkv), a.qkv_stride = qkv.row_stride;
      a.q_norm = AnyFloats(norms.q), a.k_norm = AnyFloats(norms.k), a.table = AnyFloats(table);
      a.slots = ptr<const int32_t>(slots);
      a.n = out.q.dim(0), a.q_heads = out.q.dim(1), a.kv_heads = out.k.dim(1);
      a.width = out.q.dim(2), a.eps = float(eps);
      launch(c, warps_for(a.n * (a.q_heads + 2 * a.kv_heads)), split_heads_kernel<T, K>, a);
    });
  });
}

}  // namespace nibble::cuda

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

struct HeadArgs {
  AnyFloats rstd;  // of all heads, or null
  AnyFloats weight, table;
  int64_t width;
  float eps, sign;
  bool aligned;  // heads of 128 can be moved four elements at a time
};

__device__ __forceinline__ float head_scale(float squares, int64_t index, const HeadArgs& h) {
  const float scale = 1.0f / sqrtf(warp_reduce<Sum>(squares) / float(h.width) + h.eps);
  if (h.rstd && threadIdx.x % 32 == 0) h.rstd.set(index, scale);
  return scale;
}

// Heads of 128: a lane has four columns, the lane 16 further the other halves of their pairs. With
// `cached` the result goes there, too, in that type.
template <class T, class K = T>
__device__ __forceinline__ void head_of_128(T* out, int64_t index, const T* x, int64_t token,
                                            const HeadArgs& h, K* cached = nullptr) {
  const int lane = int(threadIdx.x) % 32, at = 4 * lane, angle = at % 64;
  float v[4], co[4], s[4];
  if (h.aligned) {
    load_f32<4>(x + at, v);
  } else {
    load_f32_at<4, false>(x + at, v);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    co[k] = h.table[token * 128 + angle + k];
    s[k] = h.sign * h.table[token * 128 + 64 + angle + k];
  }
  if (h.weight) {
    float squares = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) squares = fmaf(v[k], v[k], squares);
    const float scale = head_scale(squares, index, h);
    // Rounded as the norm alone would store it.
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = to_f32(from_f32<T>(v[k] * scale * h.weight[at + k]));
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float other = __shfl_xor_sync(0xffffffffu, v[k], 16);
    v[k] = lane < 16 ? fmaf(v[k], co[k], -(other * s[k])) : fmaf(v[k], co[k], other * s[k]);
  }
  if (h.aligned) {
    store_f32<4>(out + at, v);
  } else {
    store_f32_at<4, false>(out + at, v);
  }
  if (!cached) return;
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = to_f32(from_f32<T>(v[k]));
  store_f32<4>(cached + at, v);
}

// One head, number `index` of all, normalised if there is a weight, then rotated by the token's row
// of the table: cosines, then sines. out may be x: a lane reads only what it writes, after a
// shuffle.
template <class T>
__device__ __forceinline__ void one_head(T* out, int64_t index, const T* x, int64_t token,
                                         const HeadArgs& h) {
  if (h.width == 128) {
    head_of_128(out, index, x, token, h);
    return;
  }
  const int lane = int(threadIdx.x) % 32;
  const int64_t half = h.width / 2;
  float scale = 1;
  if (h.weight) {
    float squares = 0;
    for (int64_t i = lane; i < h.width; i += 32) {
      const float v = to_f32(x[i]);
      squares = fmaf(v, v, squares);
    }
    scale = head_scale(squares, index, h);
  }
  for (int64_t i = lane; i < half; i += 32) {
    float a = to_f32(x[i]), b = to_f32(x[half + i]);
    if (h.weight) {  // rounded as the norm alone would store it
      a = to_f32(from_f32<T>(a * scale * h.weight[i]));
      b = to_f32(from_f32<T>(b * scale * h.weight[half + i]));
    }
    const float co = h.table[token * h.width + i], s = h.sign * h.table[token * h.width + half + i];
    out[i] = from_f32<T>(fmaf(a, co, -(b * s)));
    out[half + i] = from_f32<T>(fmaf(b, co, a * s));
  }
}

// To the cache, in its type.
template <class T, class K>
__device__ __forceinline__ void put_head(K* cached, const T* x, int64_t width, bool aligned) {
  const int lane = int(threadIdx.x) % 32;
  if (width == 128 && aligned) {
    float v[4];
    load_f32<4>(x + 4 * lane, v);
    store_f32<4>(cached + 4 * lane, v);
  } else {
    for (int64_t e = lane; e < width; e += 32) cached[e] = from_f32<K>(to_f32(x[e]));
  }
}

template <class T>
__global__ void norm_rope_kernel(T* out, int64_t out_stride, const T* x, int64_t x_stride,
                                 int64_t n, int64_t heads, HeadArgs h) {
  enter();
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
  K *cache_k, *cache_v;  // null: they are k, and v's place in qkv (training)
  int64_t cache_k_stride, cache_v_stride;
  const T* qkv;
  int64_t qkv_stride;
  const int32_t* slots;
  int64_t n, q_heads, kv_heads;
  HeadArgs q_args, k_args;
  bool cache_aligned;
};

template <class T, class K>
__global__ void split_heads_kernel(SplitArgs<T, K> a) {
  enter();
  const int64_t token = blockIdx.x, width = a.q_args.width;
  int64_t head = int64_t(blockIdx.y) * kWarps + threadIdx.x / 32;
  if (head >= a.q_heads + 2 * a.kv_heads) return;
  const T* x = a.qkv + token * a.qkv_stride + head * width;
  const int64_t slot = head >= a.q_heads && (a.cache_k || a.cache_v) ? a.slots[token] : 0;
  if (head < a.q_heads) {
    const int64_t at = token * a.q_heads + head;
    one_head(a.q + at * width, at, x, token, a.q_args);
    return;
  }
  head -= a.q_heads;
  if (head < a.kv_heads) {
    const int64_t at = token * a.kv_heads + head;
    T* k = a.k + at * width;
    K* cached = a.cache_k ? a.cache_k + slot * a.cache_k_stride + head * width : nullptr;
    if (width == 128 && a.cache_aligned) {
      head_of_128(k, at, x, token, a.k_args, cached);
      return;
    }
    one_head(k, at, x, token, a.k_args);
    if (!cached) return;
    __syncwarp();
    put_head(cached, k, width, a.cache_aligned);
    return;
  }
  head -= a.kv_heads;
  if (!a.cache_v) return;
  put_head(a.cache_v + slot * a.cache_v_stride + head * width, x, width, a.cache_aligned);
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
    const HeadArgs h{AnyFloats(rstd), AnyFloats(w), AnyFloats(table),   x.dim(2),
                     float(eps),      1.0f,         in_packs<4>(out, x)};
    launch(c, warps_for(x.rows()), norm_rope_kernel<T>, ptr<T>(out), out.row_stride,
           ptr<const T>(x), x.row_stride, x.dim(0), x.dim(1), h);
  });
}

void rope(const Context& c, Tensor out, Tensor x, Tensor table, Rotation rotation) {
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    const HeadArgs h{AnyFloats(),        AnyFloats(), AnyFloats(table),
                     x.dim(2),           0.0f,        rotation == Rotation::forward ? 1.0f : -1.0f,
                     in_packs<4>(out, x)};
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

void split_heads(const Context& c, const HeadSlots& out, KvView kv, Tensor qkv,
                 const HeadNorms& norms, Tensor table, Tensor slots, double eps) {
  with_float(qkv.dtype, [&](auto t) {
    with_cache_type(kv.k.dtype, [&](auto u) {
      using T = decltype(t);
      using K = decltype(u);
      const bool aligned = in_packs<4>(out.q, out.k, qkv);
      SplitArgs<T, K> a;
      a.q = ptr<T>(out.q), a.k = ptr<T>(out.k);
      const std::byte* values = qkv.data + (out.q.inner() + out.k.inner()) * int64_t(sizeof(T));
      a.cache_k = kv.k.data == out.k.data ? nullptr : ptr<K>(kv.k);
      a.cache_v = kv.v.data == values ? nullptr : ptr<K>(kv.v);
      a.cache_k_stride = kv.k.row_stride, a.cache_v_stride = kv.v.row_stride;
      a.qkv = ptr<const T>(qkv), a.qkv_stride = qkv.row_stride;
      a.slots = ptr<const int32_t>(slots);
      a.n = out.q.dim(0), a.q_heads = out.q.dim(1), a.kv_heads = out.k.dim(1);
      a.q_args = {AnyFloats(out.q_rstd),
                  AnyFloats(norms.q),
                  AnyFloats(table),
                  out.q.dim(2),
                  float(eps),
                  1.0f,
                  aligned};
      a.k_args = a.q_args;
      a.k_args.rstd = AnyFloats(out.k_rstd), a.k_args.weight = AnyFloats(norms.k);
      a.cache_aligned = aligned && in_packs<4>(kv.k, kv.v);
      // No division on the device, where those of 64 bits take as long as everything else here.
      launch(
          c,
          {dim3(unsigned(a.n), blocks_for(a.q_heads + 2 * a.kv_heads, kWarps)), dim3(32 * kWarps)},
          split_heads_kernel<T, K>, a);
    });
  });
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Between the qkv projection and attention, fused: QK-norm and RoPE of queries and keys, keys and
// values into the cache. From qkv [N, (Hq + 2 Hkv) D]. Heads of 64 or 128 with fp32 weights and
// even head counts; anything else falls back to the separate ops of heads.cu. (Heads without norms:
// rotate_heads.cu.)
//
// Grid (tokens, groups of heads), eight warps; two heads a warp at a time (one per half-warp), up
// to kTurns pairs, all loaded before the first is worked on.
//
// Bound by memory: 2048 tokens of 32 + 16 heads take 15.5 us for 54 MB, of which the projection has
// left much in the L2 cache; one head a warp, its factors loaded one by one, took 44.
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/rotate_head.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kTurns = 3;  // pairs of heads a warp, at most

template <class T, class K>
struct SplitArgs {
  T *q, *k;
  K *cache_k, *cache_v;  // null: they are k, and v's place in qkv (training)
  int64_t cache_k_stride, cache_v_stride;
  const T* qkv;
  int64_t qkv_stride;
  const int32_t* slots;
  int q_heads, kv_heads, heads;  // heads: of a row of qkv that are written anywhere
  AnyFloats q_rstd, k_rstd;      // or null
  const float *q_weight, *k_weight, *table;
  float eps;
};

template <class T, class K, int D>
__global__ void __launch_bounds__(32 * kWarps, 4) split_heads_kernel(SplitArgs<T, K> a) {
  using Head = HalfWarpHead<D>;
  constexpr int kOwn = Head::kOwn, kHalf = Head::kHalf;
  const int64_t token = blockIdx.x;
  const int at = Head::column(), side = int(threadIdx.x) % 32 / 16;
  const int first = 2 * (int(blockIdx.y) * kWarps + int(threadIdx.x) / 32);
  const int step = 2 * int(gridDim.y) * kWarps;
  float weight[2][kOwn], cosine[kOwn], sine[kOwn];
  const auto load_weight = [&](int pair) {
    const float* const w = (pair < a.q_heads ? a.q_weight : a.k_weight) + at;
    load_f32<kOwn>(w, weight[0]);
    load_f32<kOwn>(w + kHalf, weight[1]);
  };
  load_weight(first);
  pdl_enter();
  load_f32<kOwn>(a.table + token * D + at, cosine);
  load_f32<kOwn>(a.table + token * D + kHalf + at, sine);
  const int64_t slot = a.cache_k || a.cache_v ? a.slots[token] : 0;
  const T* const x = a.qkv + token * a.qkv_stride + side * D + at;
  T* const q = a.q + (token * a.q_heads + side) * D + at;
  Raw<T, kOwn> raw[kTurns][2];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int pair = first + i * step;
    if (pair >= a.heads) continue;
    raw[i][0] = raw[i][0].load(x + pair * D);
    raw[i][1] = raw[i][1].load(x + pair * D + kHalf);
  }
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int pair = first + i * step, key = pair - a.q_heads, value = key - a.kv_heads;
    if (pair >= a.heads) return;
    K* cached = nullptr;
    if (value < 0) {
      if (i > 0 && key >= 0) load_weight(pair);
      Head y;
      raw[i][0].to_f32(y.v[0]), raw[i][1].to_f32(y.v[1]);
      const float scale = y.template normalise<T>(weight, a.eps);
      y.rotate(cosine, sine);
      raw[i][0] = raw[i][0].from_f32(y.v[0]), raw[i][1] = raw[i][1].from_f32(y.v[1]);
      T* out = q + pair * D;
      if (key >= 0) {
        out = a.k + (token * a.kv_heads + key + side) * D + at;
        if (a.cache_k) cached = a.cache_k + slot * a.cache_k_stride + (key + side) * D + at;
      }
      raw[i][0].store(out), raw[i][1].store(out + kHalf);
      if (at == 0) {
        if (key < 0) {
          if (a.q_rstd) a.q_rstd.set(token * a.q_heads + pair + side, scale);
        } else {
          if (a.k_rstd) a.k_rstd.set(token * a.kv_heads + key + side, scale);
        }
      }
    } else {
      cached = a.cache_v + slot * a.cache_v_stride + (value + side) * D + at;
    }
    if (!cached) continue;
    if constexpr (std::is_same_v<T, K>) {
      raw[i][0].store(cached), raw[i][1].store(cached + kHalf);
    } else {
      float v[2][kOwn];
      raw[i][0].to_f32(v[0]), raw[i][1].to_f32(v[1]);
      store_f32<kOwn>(cached, v[0]);
      store_f32<kOwn>(cached + kHalf, v[1]);
    }
  }
}

bool fits(const HeadSlots& out, const KvView& kv, const Tensor& qkv, const HeadParams& params,
          const Tensor& table) {
  return (out.q.dim(2) == 64 || out.q.dim(2) == 128) && out.q.dim(1) % 2 == 0 &&
         out.k.dim(1) % 2 == 0 && params.q_norm.dtype == DType::f32 &&
         params.k_norm.dtype == DType::f32 && table.dtype == DType::f32 &&
         in_packs<4>(out.q, out.k, qkv, kv.k, kv.v, params.q_norm, params.k_norm, table);
}

}  // namespace

void split_heads(const Context& c, const HeadSlots& out, KvView kv, Tensor qkv,
                 const HeadParams& params, Tensor table, Tensor slots, double eps) {
  const int64_t n = out.q.dim(0), q_heads = out.q.dim(1), kv_heads = out.k.dim(1), d = out.q.dim(2);
  const auto heads = [&](int64_t begin, int64_t count) {
    return qkv.columns(begin * d, count * d).split_inner({n, count, d});
  };
  const Tensor values = heads(q_heads + kv_heads, kv_heads);
  if (!fits(out, kv, qkv, params, table)) {
    norm_rope(c, out.q, out.q_rstd, heads(0, q_heads), params.q_norm, table, eps);
    norm_rope(c, out.k, out.k_rstd, heads(q_heads, kv_heads), params.k_norm, table, eps);
    kv_append(c, kv, out.k, values, slots);
    return;
  }
  with_float(qkv.dtype, [&](auto t) {
    with_cache_type(kv.k.dtype, [&](auto u) {
      using T = decltype(t);
      using K = decltype(u);
      SplitArgs<T, K> a;
      a.q = ptr<T>(out.q), a.k = ptr<T>(out.k);
      a.cache_k = kv.k.data == out.k.data ? nullptr : ptr<K>(kv.k);
      a.cache_v = kv.v.data == values.data ? nullptr : ptr<K>(kv.v);
      a.cache_k_stride = kv.k.row_stride, a.cache_v_stride = kv.v.row_stride;
      a.qkv = ptr<const T>(qkv), a.qkv_stride = qkv.row_stride;
      a.slots = ptr<const int32_t>(slots);
      a.q_heads = int(q_heads), a.kv_heads = int(kv_heads);
      a.heads = a.q_heads + a.kv_heads * (a.cache_v ? 2 : 1);
      a.q_rstd = AnyFloats(out.q_rstd), a.k_rstd = AnyFloats(out.k_rstd);
      a.q_weight = ptr<const float>(params.q_norm), a.k_weight = ptr<const float>(params.k_norm);
      a.table = ptr<const float>(table), a.eps = float(eps);
      // Few tokens: one pair a warp, so that more SMs take part.
      const int turns = n < c.sm_count ? 1 : kTurns;
      launch(c, {dim3(unsigned(n), blocks_for(a.heads, 2 * kWarps * turns)), dim3(32 * kWarps)},
             d == 64 ? split_heads_kernel<T, K, 64> : split_heads_kernel<T, K, 128>, a);
    });
  });
}

}  // namespace nibble::cuda

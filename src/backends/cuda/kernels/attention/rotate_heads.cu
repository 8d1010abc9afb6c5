// SPDX-License-Identifier: MIT
// Heads that are not normalised: bias or none, RoPE or none, the append to the KV cache. One kernel
// for rope, bias_rope and split_heads of such models. (QK-norm: split_heads.cu, heads.cu.)
//
// Without a norm nothing crosses columns but the pairs of the rotation: a thread takes kPairs of
// them, with both halves of a head in its registers, whatever the head's width; flat grid over
// (token, head, pairs). Bound by memory; all loads of a thread are independent of each other.
//
// Every value is formed in fp32 and rounded once: x + bias, rotated, and of keys less the bias of
// the pairs that hardly turn (StillPairs). HeadBias and rotate_head
// (device_functions/rotate_head.cuh) give the same bits.
#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/raw.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 128;

// One kind of heads (queries, keys or values) of all tokens.
template <class T, class K>
struct HeadKind {
  const T* x = nullptr;
  T* out = nullptr;    // or null
  K* cache = nullptr;  // or null: its rows are those of `slots`
  int64_t x_stride = 0, out_stride = 0, cache_stride = 0;
  int heads = 0;
  int bias_at = 0;  // of its first head
  int still = 0;    // pairs from here on are held without their bias
  bool rotated = true;
};

template <class T, class K>
struct RotateArgs {
  HeadKind<T, K> kind[3];
  AnyFloats bias, table;  // bias: or null
  const int32_t* slots;
  int tokens, half, per_token;  // half of a head's width; threads of a token
  float sign, still_factor;
};

template <int W, bool kAligned, class T, class K>
__global__ void __launch_bounds__(kThreads) rotate_heads_kernel(const RotateArgs<T, K> a) {
  const int index = int(blockIdx.x) * kThreads + int(threadIdx.x), token = index / a.per_token;
  if (token >= a.tokens) {
    pdl_enter();
    return;
  }
  const int packs = a.half / W, in_token = index - token * a.per_token;
  int head = in_token / packs, which = 0;
  const int at = (in_token - head * packs) * W;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    if (which == k && head >= a.kind[k].heads) head -= a.kind[k].heads, ++which;
  }
  const HeadKind<T, K> kind = which == 0 ? a.kind[0] : which == 1 ? a.kind[1] : a.kind[2];
  float bias[2][W] = {};  // a weight: read before the wait
  if (a.bias) {
    const int64_t from = kind.bias_at + int64_t(head) * 2 * a.half + at;
    a.bias.template load<W, kAligned>(from, bias[0]);
    a.bias.template load<W, kAligned>(from + a.half, bias[1]);
  }
  pdl_enter();
  const int64_t column = int64_t(head) * 2 * a.half + at;
  const T* const x = kind.x + token * kind.x_stride + column;
  float low[W], high[W], cosine[W], sine[W];
  Raw<T, W>::template load_at<kAligned>(x).to_f32(low);
  Raw<T, W>::template load_at<kAligned>(x + a.half).to_f32(high);
  if (kind.rotated) {
    const int64_t row = int64_t(token) * 2 * a.half + at;
    a.table.template load<W, kAligned>(row, cosine);
    a.table.template load<W, kAligned>(row + a.half, sine);
  }
  const int64_t slot = kind.cache ? a.slots[token] : 0;
  if (a.bias) {
#pragma unroll
    for (int k = 0; k < W; ++k) low[k] += bias[0][k], high[k] += bias[1][k];
  }
  if (kind.rotated) {
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float first = low[k], second = high[k], s = sine[k] * a.sign;
      low[k] = fmaf(first, cosine[k], -(second * s));
      high[k] = fmaf(second, cosine[k], first * s);
      if (at + k >= kind.still) {
        low[k] -= a.still_factor * bias[0][k], high[k] -= a.still_factor * bias[1][k];
      }
    }
  }
  const Raw<T, W> lows = Raw<T, W>::from_f32(low), highs = Raw<T, W>::from_f32(high);
  if (kind.out) {
    T* const out = kind.out + token * kind.out_stride + column;
    lows.template store_at<kAligned>(out), highs.template store_at<kAligned>(out + a.half);
  }
  if (!kind.cache) return;
  K* const cached = kind.cache + slot * kind.cache_stride + column;
  if constexpr (std::is_same_v<T, K>) {
    lows.template store_at<kAligned>(cached), highs.template store_at<kAligned>(cached + a.half);
  } else {
    lows.to_f32(low), highs.to_f32(high);  // the cache gets what the activations' type holds
    store_f32_at<W, kAligned>(cached, low);
    store_f32_at<W, kAligned>(cached + a.half, high);
  }
}

template <class T, class K>
HeadKind<T, K> kind_of(const Tensor& x, const Tensor& out) {
  HeadKind<T, K> k;
  k.x = ptr<const T>(x), k.x_stride = x.row_stride, k.heads = int(x.dim(1));
  k.still = int(x.dim(2));
  if (out) k.out = ptr<T>(out), k.out_stride = out.row_stride;
  return k;
}

template <int W, bool kAligned, class T, class K>
void run(const Context& c, RotateArgs<T, K>& a, int64_t tokens, int64_t width) {
  a.tokens = int(tokens), a.half = int(width / 2);
  int heads = 0;
  for (int k = 0; k < 3; ++k) heads += a.kind[k].heads;
  a.per_token = heads * (a.half / W);
  if (tokens * a.per_token > INT32_MAX - kThreads) {
    throw_internal("rope: {} tokens with {} heads of {}", tokens, heads, width);
  }
  launch(c, {dim3(blocks_for(tokens * a.per_token, kThreads)), dim3(kThreads)},
         rotate_heads_kernel<W, kAligned, T, K>, a);
}

constexpr int kPairs = 4;  // of a thread

bool in_pairs(const Tensor& x) { return x.dim(2) / 2 % kPairs == 0; }

// One kind of heads, in place or not.
void rotate(const Context& c, Tensor out, Tensor x, Tensor bias, Tensor table, float sign,
            StillPairs still) {
  if (x.numel() == 0) return;
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    RotateArgs<T, T> a = {};
    a.kind[0] = kind_of<T, T>(x, out);
    a.kind[0].still = int(std::min(still.begin, x.dim(2)));
    a.bias = AnyFloats(bias), a.table = AnyFloats(table);
    a.sign = sign, a.still_factor = still.factor;
    if (in_pairs(x) && in_packs<kPairs>(out, x, bias, table)) {
      run<kPairs, true>(c, a, x.dim(0), x.dim(2));
    } else {
      run<1, false>(c, a, x.dim(0), x.dim(2));
    }
  });
}

template <class T>
__global__ void add_bias_kernel(T* out, int64_t out_stride, const T* x, int64_t x_stride,
                                AnyFloats bias, int64_t n, int64_t inner) {
  pdl_enter();
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n * inner;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t token = i / inner, e = i - token * inner;
    out[token * out_stride + e] = from_f32<T>(to_f32(x[token * x_stride + e]) + bias[e]);
  }
}

}  // namespace

void rope(const Context& c, Tensor out, Tensor x, Tensor table, Rotation rotation) {
  rotate(c, out, x, {}, table, rotation == Rotation::forward ? 1.0f : -1.0f, {});
}

void bias_rope(const Context& c, Tensor out, Tensor x, Tensor bias, Tensor table,
               StillPairs still) {
  rotate(c, out, x, bias, table, 1.0f, still);
}

void add_bias(const Context& c, Tensor out, Tensor x, Tensor bias) {
  if (x.numel() == 0) return;
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, {dim3(blocks_for(x.numel(), 256)), dim3(256)}, add_bias_kernel<T>, ptr<T>(out),
           out.row_stride, ptr<const T>(x), x.row_stride, AnyFloats(bias), x.dim(0), x.inner());
  });
}

bool split_rotated_heads(const Context& c, const HeadSlots& out, KvView kv, Tensor qkv,
                         const HeadParams& params, Tensor table, Tensor slots) {
  const int64_t n = out.q.dim(0), q_heads = out.q.dim(1), kv_heads = out.k.dim(1), d = out.q.dim(2);
  if (!in_pairs(out.q) || !in_packs<kPairs>(out.q, out.k, qkv, kv.k, kv.v, params.bias, table)) {
    return false;
  }
  if (n == 0) return true;
  const auto heads = [&](int64_t begin, int64_t count) {
    return qkv.columns(begin * d, count * d).split_inner({n, count, d});
  };
  const Tensor keys = heads(q_heads, kv_heads), values = heads(q_heads + kv_heads, kv_heads);
  with_float(qkv.dtype, [&](auto t) {
    with_cache_type(kv.k.dtype, [&](auto u) {
      using T = decltype(t);
      using K = decltype(u);
      RotateArgs<T, K> a = {};
      a.kind[0] = kind_of<T, K>(heads(0, q_heads), out.q);
      a.kind[1] = kind_of<T, K>(keys, out.k);
      a.kind[1].bias_at = int(q_heads * d);
      a.kind[1].still = int(std::min(params.still.begin, d));
      if (kv.k.data != out.k.data) {
        a.kind[1].cache = ptr<K>(kv.k), a.kind[1].cache_stride = kv.k.row_stride;
      }
      // Training: values stay where they are, with their bias.
      const bool in_place = kv.v.data == values.data;
      if (!in_place || params.bias) {
        a.kind[2] = kind_of<T, K>(values, in_place ? values : Tensor{});
        a.kind[2].bias_at = int((q_heads + kv_heads) * d);
        a.kind[2].rotated = false;
        if (!in_place) a.kind[2].cache = ptr<K>(kv.v), a.kind[2].cache_stride = kv.v.row_stride;
      }
      a.bias = AnyFloats(params.bias), a.table = AnyFloats(table);
      a.slots = ptr<const int32_t>(slots);
      a.sign = 1, a.still_factor = params.still.factor;
      run<kPairs, true>(c, a, n, d);
    });
  });
  return true;
}

}  // namespace nibble::cuda

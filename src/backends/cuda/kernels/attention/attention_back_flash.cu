// SPDX-License-Identifier: MIT
// Attention backward on tensor cores (mma.sync), 16-bit types, heads of 64 or 128:
// FlashAttention-2's tiles, but in two kernels, so that no atomics are needed. Chosen before the
// fallback wherever attention_back_wgmma.cu does not apply.
//
// dq kernel: grid (query heads, tiles of 64 queries), streams tiles of 64 keys and values. dk/dv
// kernel: grid (key heads, tiles of 64 keys), streams tiles of 64 queries and dout of all heads of
// the group. Four warps, 16 rows each; two resident tiles, streamed tiles double-buffered by
// cp.async. P and dS are rounded to the activations' type as A operands of the second products.
#include <cmath>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/attention/attention_back_args.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"
#include "backends/cuda/kernels/attention/attention_paths.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTile = 64;  // queries or keys; 16 a warp

template <int D>
constexpr uint32_t kTileBytes = uint32_t(kTile) * D * 2;
// Two resident tiles, two double-buffered pairs of streamed tiles, lse and delta of the latter.
template <int D>
constexpr size_t kBackShared = 6 * size_t(kTileBytes<D>) + 4 * kTile * sizeof(float);

// 16 rows of `a` times all rows of `b`, transposed (over their columns).
template <class T, int D>
__device__ __forceinline__ void product(float (&sums)[kTile / 8][4], const SharedTile<D>& a,
                                        const SharedTile<D>& b) {
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = 0;
  }
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    uint32_t rows[4];
    a.load_a(rows, 0, step);
#pragma unroll
    for (int n = 0; n < kTile / 8; n += 2) {
      uint32_t columns[4];
      b.load_b(columns, 8 * n, step);
      mma<T>(sums[n], rows, columns[0], columns[1]);
      mma<T>(sums[n + 1], rows, columns[2], columns[3]);
    }
  }
}

// sums += w b, over the rows of b.
template <class T, int D>
__device__ __forceinline__ void accumulate(float (&sums)[D / 8][4], const float (&w)[kTile / 8][4],
                                           const SharedTile<D>& b) {
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
    uint32_t rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&from)[4] = w[2 * step + i / 2];
      rows[i] = pack_pair<T>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
    }
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      uint32_t columns[4];
      b.load_b_rows(columns, 16 * step, n);
      mma<T>(sums[n], rows, columns[0], columns[1]);
      mma<T>(sums[n + 1], rows, columns[2], columns[3]);
    }
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) flash_back_queries_kernel(FlashBackArgs<T> a) {
  pdl_enter();
  extern __shared__ __align__(256) unsigned char shared[];
  const int lane = int(threadIdx.x) % 32, row = int(threadIdx.x) / 32 * 16;
  const int r = lane / 4, c = lane % 4;
  const Tile tile = find_tile(a.sequences, kTile, int(blockIdx.y));
  if (tile.sequence < 0) return;
  const Sequence s = a.sequences.p[tile.sequence];
  const int last = tile.tiles - 1 - tile.tile;  // last key tile (diagonal); long rows go first
  const int first = last * kTile, count = min(kTile, s.q_len - first);
  const int head = int(blockIdx.x), kv_head = head / a.group;
  const int64_t token = int64_t(s.q_begin) + first;
  const T* k = a.k.at(s.q_begin, kv_head, D);
  const T* v = a.v.at(s.q_begin, kv_head, D);

  const SharedTile<D> q_tile{shared_address(shared)}, dout_tile{q_tile.base + kTileBytes<D>};
  const auto stage = [&](int i) {
    return SharedTile<D>{q_tile.base + uint32_t(2 + i) * kTileBytes<D>};
  };
  const auto fetch = [&](int t) {
    const int64_t key = int64_t(t) * kTile;
    const int there = s.q_len - t * kTile;
    fetch_tile<T, T, D, kThreads, kTile>(stage(t % 2 * 2), k + key * a.k.stride, a.k.stride, there);
    fetch_tile<T, T, D, kThreads, kTile>(stage(t % 2 * 2 + 1), v + key * a.v.stride, a.v.stride,
                                         there);
  };
  fetch_tile<T, T, D, kThreads, kTile>(q_tile, a.q.at(token, head, D), a.q.stride, count);
  fetch_tile<T, T, D, kThreads, kTile>(dout_tile, a.dout.at(token, head, D), a.dout.stride, count);
  fetch(0);
  float lse[2] = {}, delta[2] = {};  // of rows r, r + 8
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int at = row + r + 8 * h;
    if (at >= count) continue;
    lse[h] = a.lse[(token + at) * a.lse_stride + head] * kLog2E;
    delta[h] = a.delta[(token + at) * a.q_heads + head];
  }
  const float scale = a.scale * kLog2E;
  float dq[D / 8][4] = {};
  for (int t = 0; t <= last; ++t) {
    cp_async_wait_all();
    __syncthreads();
    if (t < last) fetch(t + 1);
    const SharedTile<D> k_tile = stage(t % 2 * 2), v_tile = stage(t % 2 * 2 + 1);
    float p[kTile / 8][4], ds[kTile / 8][4];
    product<T, D>(p, q_tile.from_row(row), k_tile);
    product<T, D>(ds, dout_tile.from_row(row), v_tile);
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float weight = exp2_fast(fmaf(p[n][i], scale, -lse[i / 2]));
        ds[n][i] = weight * (ds[n][i] - delta[i / 2]);
        if (t == last && 8 * n + 2 * c + i % 2 > row + r + 8 * (i / 2)) ds[n][i] = 0;
      }
    }
    accumulate<T, D>(dq, ds, k_tile);
  }
  store_rows<T, D>(q_tile, row, dq, a.scale, a.scale, a.dq.at(token + row, head, D), a.dq.stride,
                   count - row);
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) flash_back_keys_kernel(FlashBackArgs<T> a) {
  pdl_enter();
  extern __shared__ __align__(256) unsigned char shared[];
  const int lane = int(threadIdx.x) % 32, row = int(threadIdx.x) / 32 * 16;
  const int r = lane / 4, c = lane % 4;
  const Tile tile = find_tile(a.sequences, kTile, int(blockIdx.y));
  if (tile.sequence < 0) return;
  const Sequence s = a.sequences.p[tile.sequence];
  const int first = tile.tile * kTile, count = min(kTile, s.q_len - first);
  const int kv_head = int(blockIdx.x);
  const int64_t token = int64_t(s.q_begin) + first;

  const SharedTile<D> k_tile{shared_address(shared)}, v_tile{k_tile.base + kTileBytes<D>};
  const auto stage = [&](int i) {
    return SharedTile<D>{k_tile.base + uint32_t(2 + i) * kTileBytes<D>};
  };
  // [2 stages][lse, delta][kTile]
  float* stats = reinterpret_cast<float*>(shared + 6 * kTileBytes<D>);
  // Query tiles from the diagonal on, of each head of the group in turn.
  const int tiles = tile.tiles - tile.tile, turns = tiles * a.group;
  const auto fetch = [&](int i) {
    const int head = kv_head * a.group + i / tiles, at = (tile.tile + i % tiles) * kTile;
    const int64_t query = int64_t(s.q_begin) + at;
    const int there = s.q_len - at, turn = i % 2;
    fetch_tile<T, T, D, kThreads, kTile>(stage(turn * 2), a.q.at(query, head, D), a.q.stride,
                                         there);
    fetch_tile<T, T, D, kThreads, kTile>(stage(turn * 2 + 1), a.dout.at(query, head, D),
                                         a.dout.stride, there);
    const int which = int(threadIdx.x) / kTile, j = int(threadIdx.x) % kTile;
    const bool wanted = j < there;
    const int64_t n = query + (wanted ? j : 0);
    const float* from = which ? a.delta + n * a.q_heads + head : a.lse + n * a.lse_stride + head;
    cp_async4(shared_address(stats + (turn * 2 + which) * kTile + j), from, wanted);
  };
  fetch_tile<T, T, D, kThreads, kTile>(k_tile, a.k.at(token, kv_head, D), a.k.stride, count);
  fetch_tile<T, T, D, kThreads, kTile>(v_tile, a.v.at(token, kv_head, D), a.v.stride, count);
  fetch(0);
  const float scale = a.scale * kLog2E;
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  for (int i = 0, t = 0; i < turns; ++i, t = t + 1 == tiles ? 0 : t + 1) {
    cp_async_wait_all();
    __syncthreads();
    if (i + 1 < turns) fetch(i + 1);
    const SharedTile<D> q_tile = stage(i % 2 * 2), dout_tile = stage(i % 2 * 2 + 1);
    const float* lse = stats + i % 2 * 2 * kTile + 2 * c;
    const float* delta = lse + kTile;
    float p[kTile / 8][4], ds[kTile / 8][4];  // rows are keys, columns queries
    product<T, D>(p, k_tile.from_row(row), q_tile);
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      const float2 shift = *reinterpret_cast<const float2*>(lse + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        p[n][e] = exp2_fast(fmaf(p[n][e], scale, (e % 2 ? shift.y : shift.x) * -kLog2E));
        if (t == 0 && 8 * n + 2 * c + e % 2 < row + r + 8 * (e / 2)) p[n][e] = 0;
      }
    }
    accumulate<T, D>(dv, p, dout_tile);
    product<T, D>(ds, v_tile.from_row(row), dout_tile);
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      const float2 shift = *reinterpret_cast<const float2*>(delta + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        ds[n][e] = p[n][e] * (ds[n][e] - (e % 2 ? shift.y : shift.x));
      }
    }
    accumulate<T, D>(dk, ds, q_tile);
  }
  // The epilogue reuses the resident tiles: a warp's rows are read by that warp alone.
  store_rows<T, D>(k_tile, row, dk, a.scale, a.scale, a.dk.at(token + row, kv_head, D), a.dk.stride,
                   count - row);
  store_rows<T, D>(v_tile, row, dv, 1.0f, 1.0f, a.dv.at(token + row, kv_head, D), a.dv.stride,
                   count - row);
}

template <class T, int D>
void flash_back(const Context& c, const AttentionBackCall& call, const float* delta) {
  const auto args = flash_back_args<T>(call, delta);
  const unsigned tiles = tile_limit(call.tokens(), call.sequences.dim(0), kTile);
  const auto queries = flash_back_queries_kernel<T, D>;
  const auto keys = flash_back_keys_kernel<T, D>;
  allow_shared(c, queries);
  allow_shared(c, keys);
  launch(c, {dim3(unsigned(call.kv_heads()), tiles), dim3(kThreads), kBackShared<D>}, keys, args);
  launch(c, {dim3(unsigned(call.q_heads()), tiles), dim3(kThreads), kBackShared<D>}, queries, args);
}

}  // namespace

bool attention_back_flash(const Context& c, const AttentionBackCall& a, const float* delta) {
  if (!tensor_core_types(a) || a.kv.k.dtype == DType::f8_e4m3 || a.lse.dtype != DType::f32 ||
      c.shared_per_block < kBackShared<128> ||
      tile_limit(a.tokens(), a.sequences.dim(0), kTile) > 65535 ||
      !heads_aligned(a.dq, a.dk, a.dv, a.dout, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  const auto with_width = [&](auto t) {
    using T = decltype(t);
    if (a.width() == 128) {
      flash_back<T, 128>(c, a, delta);
    } else {
      flash_back<T, 64>(c, a, delta);
    }
  };
  if (a.q.dtype == DType::bf16) {
    with_width(bf16{});
  } else {
    with_width(f16{});
  }
  return true;
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// FlashAttention-2 forward on mma.sync: many queries a sequence (prefill, training) in bf16 or f16,
// cache of that type or f8_e4m3, heads of 64 or 128. Chosen after attention_wgmma.cu.
//
// Grid (query heads, tiles of 128 or 64 queries), four warps; key and value tiles of 64,
// double-buffered by cp.async; online softmax in fp32. P is rounded to the activations' type for
// the second product; its row sum is taken before that. Tiles that no query sees are never read.
// Within a tile, values of masked keys are multiplied by zero: a NaN among them shows in the tile's
// earlier queries.
#include <cmath>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"
#include "backends/cuda/kernels/attention/attention_paths.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kKeys = 64;
// A warp takes kMTiles m16 tiles of queries: two where there is enough work, because every key and
// value fragment then serves twice; one where SMs would be idle otherwise.
template <int kMTiles>
constexpr int kQueries = kThreads / 32 * kMTiles * 16;
template <int kMTiles, int D>
constexpr size_t kFlashShared = size_t(kQueries<kMTiles> + 4 * kKeys) * D * 2;

template <class T, class K>
struct FlashArgs {
  Heads<T> out;
  LseView lse;
  Heads<const T> q;
  Heads<const K> k, v;
  Sequences sequences;
  int group;
  float scale;  // with log2 e
};

// scores = q k^T for a warp's queries.
template <class T, int kMTiles, int D>
__device__ __forceinline__ void score(float (&scores)[kMTiles][kKeys / 8][4],
                                      const SharedTile<D>& q, const SharedTile<D>& k) {
#pragma unroll
  for (int b = 0; b < kMTiles; ++b) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[b][n][i] = 0;
    }
  }
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    uint32_t rows[kMTiles][4];
#pragma unroll
    for (int b = 0; b < kMTiles; ++b) q.load_a(rows[b], 16 * b, step);
#pragma unroll
    for (int n = 0; n < kKeys / 8; n += 2) {
      uint32_t columns[4];
      k.load_b(columns, 8 * n, step);
#pragma unroll
      for (int b = 0; b < kMTiles; ++b) {
        mma<T>(scores[b][n], rows[b], columns[0], columns[1]);
        mma<T>(scores[b][n + 1], rows[b], columns[2], columns[3]);
      }
    }
  }
}

template <class T, class K, int kMTiles, int D>
__global__ void __launch_bounds__(kThreads, 2) flash_kernel(FlashArgs<T, K> a) {
  pdl_enter();
  constexpr int kRows = kQueries<kMTiles>;
  extern __shared__ __align__(256) unsigned char shared[];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, r = lane / 4, c = lane % 4;
  const Tile tile = find_tile(a.sequences, kRows, int(blockIdx.y));
  if (tile.sequence < 0) return;
  const Sequence s = a.sequences.p[tile.sequence];
  // Long rows first: late queries see the most keys.
  const int first = (tile.tiles - 1 - tile.tile) * kRows, count = min(kRows, s.q_len - first);
  const int head = int(blockIdx.x), kv_head = head / a.group;
  const int before = s.kv_len - s.q_len + 1;  // keys that query 0 sees
  const int keys = before + first + count - 1;
  const T* q = a.q.at(int64_t(s.q_begin) + first, head, D);
  const K* k = a.k.at(s.kv_begin, kv_head, D);
  const K* v = a.v.at(s.kv_begin, kv_head, D);

  constexpr uint32_t kTileBytes = uint32_t(kKeys) * D * 2;
  const uint32_t base = shared_address(shared);
  const SharedTile<D> q_tile{base};
  const auto stage = [&](int i) {
    return SharedTile<D>{base + uint32_t(kRows) * D * 2 + uint32_t(i) * kTileBytes};
  };
  const auto fetch = [&](int t) {
    const int64_t key = int64_t(t) * kKeys;
    const int there = keys - t * kKeys;
    fetch_tile<T, K, D, kThreads, kKeys>(stage(t % 2 * 2), k + key * a.k.stride, a.k.stride, there);
    fetch_tile<T, K, D, kThreads, kKeys>(stage(t % 2 * 2 + 1), v + key * a.v.stride, a.v.stride,
                                         there);
  };
  fetch_tile<T, T, D, kThreads, kRows>(q_tile, q, a.q.stride, count);
  fetch(0);

  // Causal mask: row i of the warp sees min(all_see + i, any_sees) keys; rows behind the end see
  // what the last one sees.
  const int row = warp * kMTiles * 16;
  const SharedTile<D> q_rows = q_tile.from_row(row);
  const int all_see = before + first + min(row, count - 1);
  const int any_sees = before + first + min(row + kMTiles * 16, count) - 1;
  float sums[kMTiles][D / 8][4] = {}, row_max[kMTiles][2], row_sum[kMTiles][2] = {};
#pragma unroll
  for (int b = 0; b < kMTiles; ++b) row_max[b][0] = row_max[b][1] = -INFINITY;

  const int tiles = (keys + kKeys - 1) / kKeys;
  for (int t = 0; t < tiles; ++t) {
    cp_async_wait_all();
    __syncthreads();
    if (t + 1 < tiles) fetch(t + 1);
    const int key = t * kKeys;
    if (row >= count || key >= any_sees) continue;
    const SharedTile<D> k_tile = stage(t % 2 * 2), v_tile = stage(t % 2 * 2 + 1);
    float p[kMTiles][kKeys / 8][4];
    score<T, kMTiles, D>(p, q_rows, k_tile);
    if (key + kKeys > all_see) {
#pragma unroll
      for (int b = 0; b < kMTiles; ++b) {
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int seen = min(all_see + 16 * b + 8 * (i / 2) + r, any_sees) - key;
            if (8 * n + 2 * c + i % 2 >= seen) p[b][n][i] = -INFINITY;
          }
        }
      }
    }
    float factor[kMTiles][2];
    bool rescale = false;
#pragma unroll
    for (int b = 0; b < kMTiles; ++b) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float m = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) m = fmaxf(m, fmaxf(p[b][n][2 * h], p[b][n][2 * h + 1]));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
        m = fmaxf(row_max[b][h], m * a.scale);  // the first key is seen by all: never -inf
        factor[b][h] = exp2_fast(row_max[b][h] - m);
        rescale |= factor[b][h] != 1.0f;
        row_max[b][h] = m;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i) {
            p[b][n][i] = exp2_fast(fmaf(p[b][n][i], a.scale, -m));
            sum += p[b][n][i];
          }
        }
        row_sum[b][h] = fmaf(row_sum[b][h], factor[b][h], sum);
      }
    }
    if (__any_sync(0xffffffffu, rescale)) {
#pragma unroll
      for (int b = 0; b < kMTiles; ++b) {
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[b][n][i] *= factor[b][i / 2];
        }
      }
    }
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t weights[kMTiles][4];
#pragma unroll
      for (int b = 0; b < kMTiles; ++b) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&from)[4] = p[b][2 * step + i / 2];
          weights[b][i] = pack_pair<T>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        uint32_t columns[4];
        v_tile.load_b_rows(columns, 16 * step, n);
#pragma unroll
        for (int b = 0; b < kMTiles; ++b) {
          mma<T>(sums[b][n], weights[b], columns[0], columns[1]);
          mma<T>(sums[b][n + 1], weights[b], columns[2], columns[3]);
        }
      }
    }
  }

#pragma unroll
  for (int b = 0; b < kMTiles; ++b) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      row_sum[b][h] += __shfl_xor_sync(0xffffffffu, row_sum[b][h], 1);
      row_sum[b][h] += __shfl_xor_sync(0xffffffffu, row_sum[b][h], 2);
      const int at = row + 16 * b + r + 8 * h;
      if (c == 0 && at < count) {
        a.lse.set(int64_t(s.q_begin) + first + at, head,
                  (row_max[b][h] + log2f(row_sum[b][h])) * kLn2);
      }
    }
    const int begin = row + 16 * b;
    store_rows<T, D>(q_tile, begin, sums[b], 1.0f / row_sum[b][0], 1.0f / row_sum[b][1],
                     a.out.at(int64_t(s.q_begin) + first + begin, head, D), a.out.stride,
                     count - begin);
  }
}

template <class T, class K, int kMTiles, int D>
void flash(const Context& c, const AttentionCall& call) {
  const auto kernel = flash_kernel<T, K, kMTiles, D>;
  allow_shared(c, kernel);
  const FlashArgs<T, K> args{heads<T>(call.out),        lse_view(call.lse),
                             heads<const T>(call.q),    heads<const K>(call.kv.k),
                             heads<const K>(call.kv.v), sequences_of(call.sequences),
                             int(call.group()),         kLog2E / std::sqrt(float(D))};
  const unsigned tiles = tile_limit(call.tokens(), call.sequences.dim(0), kQueries<kMTiles>);
  launch(c, {dim3(unsigned(call.q_heads()), tiles), dim3(kThreads), kFlashShared<kMTiles, D>},
         kernel, args);
}

template <class T, class K, int D>
void flash(const Context& c, const AttentionCall& call) {
  // Two blocks are resident per SM.
  const int64_t tiles = tile_limit(call.tokens(), call.sequences.dim(0), kQueries<2>);
  if (tiles * call.q_heads() >= 2 * c.sm_count) {
    flash<T, K, 2, D>(c, call);
  } else {
    flash<T, K, 1, D>(c, call);
  }
}

template <class T, class K>
void flash(const Context& c, const AttentionCall& call) {
  if (call.width() == 128) {
    flash<T, K, 128>(c, call);
  } else {
    flash<T, K, 64>(c, call);
  }
}

}  // namespace

bool attention_flash(const Context& c, const AttentionCall& a) {
  if (!tensor_core_types(a) || tile_limit(a.tokens(), a.sequences.dim(0), kQueries<1>) > 65535 ||
      c.shared_per_block < kFlashShared<2, 128> || !heads_aligned(a.out, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  with_attention_types(a, [&](auto t, auto k) { flash<decltype(t), decltype(k)>(c, a); });
  return true;
}

}  // namespace nibble::cuda

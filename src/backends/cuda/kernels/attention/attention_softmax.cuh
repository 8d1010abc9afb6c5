// SPDX-License-Identifier: MIT
// Register work of a consumer warpgroup of attention_wgmma.cu on its 64 queries: online softmax,
// causal mask, query fragments, epilogue. Accumulator layout of wgmma: lane (r, c) of a warp has
// rows 16 warp + r and 8 further, columns 8 n + 2 c and 8 n + 2 c + 1.
#pragma once
#include "backends/cuda/kernels/attention/attention_scheduler.cuh"
#include "backends/cuda/kernels/attention/attention_warpgroups.cuh"

namespace nibble::cuda {

#if defined(NIBBLE_HAS_WGMMA)

// Output accumulator, row maxima and row sums of the lane's two rows.
struct RowStats {
  float row_max[2], row_sum[2];
};
template <int kWidth>
struct SoftmaxTile : RowStats {
  float sums[kWidth / 2];
};

// Scores to P in place; factor: the rescaling of the accumulator.
__device__ __forceinline__ void online_softmax(float (&p)[64], RowStats& rows, float scale,
                                               float (&factor)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float m = -INFINITY;
#pragma unroll
    for (int n = 0; n < QueryBlock::kKeys / 8; ++n)
      m = fmaxf(m, fmaxf(p[4 * n + 2 * h], p[4 * n + 2 * h + 1]));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
    m = fmaxf(rows.row_max[h], m * scale);  // the first key is seen by all: never -inf
    factor[h] = exp2_fast(rows.row_max[h] - m);
    rows.row_max[h] = m;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < QueryBlock::kKeys / 8; ++n) {
#pragma unroll
      for (int i = 4 * n + 2 * h; i < 4 * n + 2 * h + 2; ++i) {
        p[i] = exp2_fast(fmaf(p[i], scale, -m));
        sum += p[i];
      }
    }
    rows.row_sum[h] = fmaf(rows.row_sum[h], factor[h], sum);
  }
}

__device__ __forceinline__ void mask(float (&p)[64], const QueryBlock& block, int key, int warp) {
  const int lane = int(threadIdx.x) % 32, r = lane / 4, c = lane % 4;
  if (key + QueryBlock::kKeys <= block.sees) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int seen = min(block.sees + 16 * warp + r + 8 * h, block.keys()) - key;
#pragma unroll
    for (int n = 0; n < QueryBlock::kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * n + 2 * c + i >= seen) p[4 * n + 2 * h + i] = -INFINITY;
      }
    }
  }
}

// The queries as A fragments in registers (wgmma RS form).
template <int kWidth>
struct QueryFragments {
  uint32_t words[kWidth / 16][4];
};
template <int kWidth>
__device__ __forceinline__ void load_query_fragments(
    QueryFragments<kWidth>& queries, const WgmmaTile<2 * QueryBlock::kRows, kWidth>& q, int group,
    int warp) {
  const int lane = int(threadIdx.x) % 32, r = group * QueryBlock::kRows + 16 * warp + lane / 4,
            c = lane % 4;
#pragma unroll
  for (int s = 0; s < kWidth / 16; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      queries.words[s][i] = load_word(q.at(r + 8 * (i % 2), 2 * s + i / 2) + 4 * c);
    }
  }
}

// Epilogue straight from registers: the four lanes of a quad transpose four 16-byte chunks by
// shuffles, so that each stores one.
template <int kWidth>
__device__ __forceinline__ void write(Heads<bf16> out, LseView lse, const SoftmaxTile<kWidth>& rows,
                                      const QueryBlock& block, int head, int warp) {
  const int lane = int(threadIdx.x) % 32, r = lane / 4, c = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float row_sum = rows.row_sum[h] + __shfl_xor_sync(0xffffffffu, rows.row_sum[h], 1);
    row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 2);
    const float inverse = 1.0f / row_sum;
    const int row = 16 * warp + r + 8 * h;
    const bool there = row < block.count;
    if (c == 0 && there) {
      lse.set(block.row + row, head, (rows.row_max[h] + log2f(row_sum)) * kLn2);
    }
    bf16* const to = out.at(block.row + row, head, kWidth) + 8 * c;
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 4) {
      uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const s = rows.sums + 4 * (n + i) + 2 * h;
        x[i] = pack_pair<bf16>(s[0] * inverse, s[1] * inverse);
      }
      // x[i] is word c of chunk n + i; then word 2 (c / 2) + i % 2 of chunk n + 2 (i / 2) + c % 2;
      // then word i of chunk n + c.
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, c % 2 ? x[i] : x[i + 1], 1);
        x[i] = c % 2 ? got : x[i], x[i + 1] = c % 2 ? x[i + 1] : got;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, c / 2 ? x[i] : x[i + 2], 2);
        x[i] = c / 2 ? got : x[i], x[i + 2] = c / 2 ? x[i + 2] : got;
      }
      if (there) *reinterpret_cast<uint4*>(to + 8 * n) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
}

#endif

}  // namespace nibble::cuda

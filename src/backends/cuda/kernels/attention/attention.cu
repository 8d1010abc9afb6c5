// SPDX-License-Identifier: MIT
// Attention forward: dispatch over the kernels of this folder (attention() at the end), and the
// fallback for any type, head width and layout, in fp32.
//
// out [N, Hq, D] = softmax(q k^T / sqrt(D)) v over the keys a token sees, lse [N, Hq] its
// log-sum-exp. Fallback: grid (tokens, query heads), four warps a block; a warp takes blocks of 32
// keys in turn (one a lane), counted from the sequence's first, with an online softmax; warps are
// combined in order. Only keys the token sees are ever read. Heads wider than 256 take several
// passes.
#include <cmath>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/attention/attention_paths.h"
#include "backends/cuda/kernels/attention/attention_rows.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

template <class T, class K>
struct RowArgs {
  Heads<T> out;
  LseView lse;
  Heads<const T> q;
  Heads<const K> k, v;
  Sequences sequences;
  int group, width;
  float scale;
};

template <class T, class K, int W>
__global__ void __launch_bounds__(kRowThreads) attention_rows_kernel(RowArgs<T, K> a) {
  pdl_enter();
  extern __shared__ float q[];  // [width]
  __shared__ float partial[kRowWarps][kPassWidth];
  __shared__ float maxima[kRowWarps], sums[kRowWarps];
  const int64_t token = blockIdx.x;
  const int head = int(blockIdx.y), kv_head = head / a.group;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int s = sequence_of(a.sequences, token);
  if (s < 0) return;
  const Sequence sequence = a.sequences.p[s];
  const int visible = visible_keys(sequence, token);
  load_row(q, a.q.at(token, head, a.width), a.width);
  __syncthreads();

  for (int first = 0; first < a.width; first += kPassWidth) {
    float acc[kPerLane] = {}, row_max = -INFINITY, sum = 0;
    for (int j0 = 32 * warp; j0 < visible; j0 += kRowThreads) {
      const int count = min(32, visible - j0);
      const int64_t slot = int64_t(sequence.kv_begin) + j0 + min(lane, count - 1);
      float score = -INFINITY;
      if (lane < count) {
        score = a.scale * lane_dot<W>(q, a.k.at(slot, kv_head, a.width), a.width);
      }
      // fmaxf drops a NaN, but the sum keeps it.
      const float new_max = fmaxf(row_max, warp_reduce<Max>(score));
      const float factor = expf(row_max - new_max);
      const float p = lane < count ? expf(score - new_max) : 0.0f;
      sum = fmaf(sum, factor, warp_reduce<Sum>(p));
      row_max = new_max;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) acc[i] *= factor;
      add_rows(acc, p, a.v.at(slot, kv_head, a.width), count, first, a.width);
    }
    if (lane == 0) maxima[warp] = row_max, sums[warp] = sum;
    __syncthreads();
    float all = maxima[0], row_sum = 0;
    for (int w = 1; w < kRowWarps; ++w) all = fmaxf(all, maxima[w]);
    // A warp without keys has row maximum -inf: its weight is 0.
    for (int w = 0; w < kRowWarps; ++w) row_sum += sums[w] * expf(maxima[w] - all);
    merge_warps(a.out.at(token, head, a.width), acc, expf(row_max - all), 1.0f / row_sum, partial,
                first, a.width);
    if (first == 0 && threadIdx.x == 0) a.lse.set(token, head, logf(row_sum) + all);
  }
}

void attention_rows(const Context& c, const AttentionCall& call) {
  const int64_t width = call.width();
  if (width > kMaxWidth) {
    throw_internal("attention: heads of {} elements, the kernel takes {}", width, kMaxWidth);
  }
  with_float(call.q.dtype, [&](auto t) {
    using T = decltype(t);
    with_cache_type(call.kv.k.dtype, [&](auto k) {
      using K = decltype(k);
      const RowArgs<T, K> args{heads<T>(call.out),
                               lse_view(call.lse),
                               heads<const T>(call.q),
                               heads<const K>(call.kv.k),
                               heads<const K>(call.kv.v),
                               sequences_of(call.sequences),
                               int(call.group()),
                               int(width),
                               1.0f / std::sqrt(float(width))};
      const auto kernel = rows_in_eights(call.kv.k) ? attention_rows_kernel<T, K, 8>
                                                    : attention_rows_kernel<T, K, 1>;
      launch(c,
             {dim3(unsigned(call.tokens()), unsigned(call.q_heads())), dim3(kRowThreads),
              size_t(width) * sizeof(float)},
             kernel, args);
    });
  });
}

}  // namespace

void attention(const Context& c, Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) {
  const AttentionCall call{{q, kv, sequences}, out, lse};
  if (q.numel() == 0 || sequences.dim(0) == 0) return;
  if (attention_decode_many(c, call)) return;
  if (attention_decode(c, call)) return;
  if (attention_wgmma(c, call)) return;
  if (attention_flash(c, call)) return;
  attention_rows(c, call);
}

}  // namespace nibble::cuda

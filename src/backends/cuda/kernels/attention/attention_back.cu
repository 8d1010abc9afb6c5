// SPDX-License-Identifier: MIT
// Attention backward: dispatch, delta = rowsum(dout * out) for all kernels, and the fallback for
// any type, width and layout (fp32, the building blocks of attention_rows.cuh).
//
// P is recomputed from scores and lse, as in FlashAttention. dq: a block per (token, query head)
// sums over keys; dk, dv: a block per (token, key head) sums over the queries that see it. So
// nothing is added across blocks, no atomics, and the order never changes.
#include <cmath>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/raw.cuh"
#include "backends/cuda/kernels/attention/attention_paths.h"
#include "backends/cuda/kernels/attention/attention_rows.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

template <class T>
struct BackArgs {
  Heads<T> dq, dk, dv;
  Heads<const T> dout, out, q, k, v;
  LseView lse;
  float* delta;  // [N, Hq]
  Sequences sequences;
  int q_heads, group, width;
  float scale;
};

// delta = dout . out, one warp per (token, head).
template <class T>
__global__ void __launch_bounds__(kRowThreads) delta_kernel(BackArgs<T> a, int items) {
  pdl_enter();
  const int lane = int(threadIdx.x) % 32;
  const int i = int(blockIdx.x) * kRowWarps + int(threadIdx.x) / 32;
  if (i >= items) return;
  const T* x = a.dout.at(i / a.q_heads, i % a.q_heads, a.width);
  const T* y = a.out.at(i / a.q_heads, i % a.q_heads, a.width);
  float sum = 0;
  for (int d = lane; d < a.width; d += 32) sum = fmaf(to_f32(x[d]), to_f32(y[d]), sum);
  sum = warp_reduce<Sum>(sum);
  if (lane == 0) a.delta[i] = sum;
}

// The same bits for heads of 64 or 128 with vector loads, all of a head in flight at once: four
// lanes per head, each with packs of eight columns 32 apart, i.e. the sums of lanes 8 l .. 8 l + 7
// of the kernel above. Bound by memory: 2048 tokens with 32 heads of 128 take 10.5 us for 34 MB;
// element by element 23.
constexpr int kDeltaLanes = 4;

template <class T, int kWidth>
__global__ void __launch_bounds__(kRowThreads) delta_packs_kernel(BackArgs<T> a, int items) {
  constexpr int kPacks = kWidth / 32;
  pdl_enter();
  const int thread = int(blockIdx.x) * kRowThreads + int(threadIdx.x);
  const int i = thread / kDeltaLanes, column = thread % kDeltaLanes * 8, head = min(i, items - 1);
  const T* x = a.dout.at(head / a.q_heads, head % a.q_heads, kWidth) + column;
  const T* y = a.out.at(head / a.q_heads, head % a.q_heads, kWidth) + column;
  Raw<T, 8> dout[kPacks], out[kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    dout[j] = dout[j].load(x + 32 * j), out[j] = out[j].load(y + 32 * j);
  }
  float sum[8] = {};
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    float u[8], v[8];
    dout[j].to_f32(u), out[j].to_f32(v);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] = fmaf(u[k], v[k], sum[k]);
  }
  // The tree of warp_reduce: lanes 16 apart, then 8, 4, 2 and 1.
#pragma unroll
  for (int o = kDeltaLanes / 2; o > 0; o /= 2) {
#pragma unroll
    for (float& s : sum) s += __shfl_xor_sync(0xffffffffu, s, o);
  }
#pragma unroll
  for (int o = 4; o > 0; o /= 2) {
#pragma unroll
    for (int k = 0; k < o; ++k) sum[k] += sum[k + o];
  }
  if (column == 0 && i < items) a.delta[i] = sum[0];
}

// dq of one head of one token.
template <class T, int W>
__global__ void __launch_bounds__(kRowThreads) back_queries_kernel(BackArgs<T> a) {
  pdl_enter();
  extern __shared__ float rows[];  // q, dout
  __shared__ float partial[kRowWarps][kPassWidth];
  float *q = rows, *dout = rows + a.width;
  const int64_t token = blockIdx.x;
  const int head = int(blockIdx.y), kv_head = head / a.group;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int s = sequence_of(a.sequences, token);
  if (s < 0) return;
  const Sequence sequence = a.sequences.p[s];
  const int visible = visible_keys(sequence, token);
  load_row(q, a.q.at(token, head, a.width), a.width);
  load_row(dout, a.dout.at(token, head, a.width), a.width);
  __syncthreads();
  const float lse = a.lse.get(token, head), delta = a.delta[token * a.q_heads + head];

  for (int first = 0; first < a.width; first += kPassWidth) {
    float acc[kPerLane] = {};
    for (int j0 = 32 * warp; j0 < visible; j0 += kRowThreads) {
      const int count = min(32, visible - j0);
      const int64_t slot = int64_t(sequence.kv_begin) + j0 + min(lane, count - 1);
      const T* k = a.k.at(slot, kv_head, a.width);
      float ds = 0;
      if (lane < count) {
        const float p = expf(a.scale * lane_dot<W>(q, k, a.width) - lse);
        ds = p * (lane_dot<W>(dout, a.v.at(slot, kv_head, a.width), a.width) - delta) * a.scale;
      }
      add_rows(acc, ds, k, count, first, a.width);
    }
    merge_warps(a.dq.at(token, head, a.width), acc, 1.0f, 1.0f, partial, first, a.width);
  }
}

// dk and dv of one key head of one token. Sums run over the queries that see it, token by token,
// and within a token over the query heads of its group.
template <class T, int W>
__global__ void __launch_bounds__(kRowThreads) back_keys_kernel(BackArgs<T> a) {
  pdl_enter();
  extern __shared__ float rows[];  // k, v
  __shared__ float partial[kRowWarps][kPassWidth];
  float *k = rows, *v = rows + a.width;
  const int64_t token = blockIdx.x;
  const int kv_head = int(blockIdx.y);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int s = sequence_of(a.sequences, token);
  if (s < 0) return;
  const Sequence sequence = a.sequences.p[s];
  const int64_t items = (int64_t(sequence.q_begin) + sequence.q_len - token) * a.group;
  load_row(k, a.k.at(token, kv_head, a.width), a.width);
  load_row(v, a.v.at(token, kv_head, a.width), a.width);
  __syncthreads();

  for (int first = 0; first < a.width; first += kPassWidth) {
    float dk[kPerLane] = {}, dv[kPerLane] = {};
    for (int64_t j0 = 32 * warp; j0 < items; j0 += kRowThreads) {
      const int count = int(min(int64_t(32), items - j0));
      const int64_t j = j0 + min(lane, count - 1);
      const int64_t query = token + j / a.group, head = int64_t(kv_head) * a.group + j % a.group;
      const T* q = a.q.at(query, head, a.width);
      const T* dout = a.dout.at(query, head, a.width);
      float p = 0, ds = 0;
      if (lane < count) {
        p = expf(a.scale * lane_dot<W>(k, q, a.width) - a.lse.get(query, head));
        ds = p * (lane_dot<W>(v, dout, a.width) - a.delta[query * a.q_heads + head]) * a.scale;
      }
      add_rows(dv, p, dout, count, first, a.width);
      add_rows(dk, ds, q, count, first, a.width);
    }
    merge_warps(a.dk.at(token, kv_head, a.width), dk, 1.0f, 1.0f, partial, first, a.width);
    merge_warps(a.dv.at(token, kv_head, a.width), dv, 1.0f, 1.0f, partial, first, a.width);
  }
}

template <class T>
BackArgs<T> arguments(const AttentionBackCall& call, float* delta) {
  return {heads<T>(call.dq),
          heads<T>(call.dk),
          heads<T>(call.dv),
          heads<const T>(call.dout),
          heads<const T>(call.out),
          heads<const T>(call.q),
          heads<const T>(call.kv.k),
          heads<const T>(call.kv.v),
          lse_view(call.lse),
          delta,
          sequences_of(call.sequences),
          int(call.q_heads()),
          int(call.group()),
          int(call.width()),
          1.0f / std::sqrt(float(call.width()))};
}

template <class T>
void back_rows(const Context& c, const AttentionBackCall& call, float* delta) {
  const BackArgs<T> args = arguments<T>(call, delta);
  const size_t shared = 2 * size_t(call.width()) * sizeof(float);
  const bool keys = rows_in_eights(call.kv.k) && rows_in_eights(call.kv.v);
  const bool queries = rows_in_eights(call.q) && rows_in_eights(call.dout);
  launch(c, {dim3(unsigned(call.tokens()), unsigned(call.q_heads())), dim3(kRowThreads), shared},
         keys ? back_queries_kernel<T, 8> : back_queries_kernel<T, 1>, args);
  launch(c, {dim3(unsigned(call.tokens()), unsigned(call.kv_heads())), dim3(kRowThreads), shared},
         queries ? back_keys_kernel<T, 8> : back_keys_kernel<T, 1>, args);
}

}  // namespace

void attention_back(const Context& c, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                    Tensor lse, Tensor q, KvView kv, Tensor sequences) {
  const AttentionBackCall call{{q, kv, sequences}, dq, dk, dv, dout, out, lse};
  if (q.numel() == 0 || sequences.dim(0) == 0) return;
  const int64_t items = call.tokens() * call.q_heads();
  if (call.width() > kMaxWidth || size_t(items) * sizeof(float) > Context::kScratchBytes) {
    throw_internal(
        "attention_back: {} tokens with {} heads of {} elements, too much for the kernel",
        call.tokens(), call.q_heads(), call.width());
  }
  float* delta = reinterpret_cast<float*>(c.scratch());
  with_float(q.dtype, [&](auto t) {
    using T = decltype(t);
    const bool in_eights = rows_in_eights(dout) && rows_in_eights(out);
    const auto sums = [&](auto kernel, int64_t lanes) {
      launch(c, {dim3(blocks_for(items * lanes, kRowThreads)), dim3(kRowThreads)}, kernel,
             arguments<T>(call, delta), int(items));
    };
    if (in_eights && call.width() == 128) {
      sums(delta_packs_kernel<T, 128>, kDeltaLanes);
    } else if (in_eights && call.width() == 64) {
      sums(delta_packs_kernel<T, 64>, kDeltaLanes);
    } else {
      sums(delta_kernel<T>, 32);
    }
    if (attention_back_wgmma(c, call, delta)) return;
    if (!attention_back_flash(c, call, delta)) back_rows<T>(c, call, delta);
  });
}

}  // namespace nibble::cuda

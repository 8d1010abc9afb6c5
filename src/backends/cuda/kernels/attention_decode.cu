// SPDX-License-Identifier: MIT
// Attention for few queries a sequence and long caches: a block is one team (attention_shares.cuh).
//
// decode_kernel has the query heads as rows of A, of which there are 16 and at most 8 are used;
// teams_kernel, for one token where that may be one launch, has the sums of decode/token_kernel.cu.
#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/kernels/attention_shares.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

using namespace shares;

constexpr int64_t kFewQueries = 8;  // a sequence, on average

// One warp's running softmax over the rows of A in use: row lane / 4.
template <int D>
struct QueryRows {
  float sums[D / 8][4] = {};
  float largest = -INFINITY, total = 0;
};

template <class T, class K, int D>
__device__ __forceinline__ void attend_rows(QueryRows<D>& run, const uint32_t (&q)[D / 16][2],
                                            const std::byte* stage, float scale, int count) {
  using S = Stage<K, D>;
  using KL = typename S::KL;
  using VL = typename S::VL;
  const int lane = int(threadIdx.x) % 32, c = lane % 4;
  typename KL::Piece keys[2][KL::kPieces];
#pragma unroll
  for (int t = 0; t < 2; ++t) {
#pragma unroll
    for (int j = 0; j < KL::kPieces; ++j) {
      keys[t][j] = *reinterpret_cast<const typename KL::Piece*>(stage + S::key_piece(t, j));
    }
  }
  typename VL::Piece values[4][VL::kPieces];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
#pragma unroll
    for (int j = 0; j < VL::kPieces; ++j) {
      values[t][j] = *reinterpret_cast<const typename VL::Piece*>(stage + S::value_piece(t, j));
    }
  }

  float scores[2][4] = {};
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    uint32_t b[D / 16][2];
    column_fragments<T, K, D>(b, keys[t]);
#pragma unroll
    for (int s = 0; s < D / 16; ++s) {
      const uint32_t rows[4] = {q[s][0], 0, q[s][1], 0};
      mma<T>(scores[t], rows, b[s][0], b[s][1]);
    }
  }
  float p[2][2], block = -INFINITY;
#pragma unroll
  for (int t = 0; t < 2; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      p[t][i] = 8 * t + 2 * c + i < count ? scores[t][i] * scale : -INFINITY;
      block = fmaxf(block, p[t][i]);
    }
  }
  block = fmaxf(block, __shfl_xor_sync(0xffffffffu, block, 1));
  block = fmaxf(block, __shfl_xor_sync(0xffffffffu, block, 2));
  const float largest = fmaxf(run.largest, block);
  const float factor = exp2_fast(run.largest - largest);
  float sum = 0;
#pragma unroll
  for (int t = 0; t < 2; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) sum += p[t][i] = exp2_fast(p[t][i] - largest);
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  run.total = fmaf(run.total, factor, sum);
  run.largest = largest;
  const uint32_t weights[4] = {pack_pair<T>(p[0][0], p[0][1]), 0, pack_pair<T>(p[1][0], p[1][1]),
                               0};
#pragma unroll
  for (int j = 0; j < VL::kPieces; ++j) {
#pragma unroll
    for (int e = 0; e < VL::kElements; ++e) {
      // The same element of two neighbouring keys makes a pair.
      uint32_t b[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Words<VL::kBytes>&first = values[2 * h][j], &second = values[2 * h + 1][j];
        if constexpr (std::is_same_v<T, K>) {
          b[h] = __byte_perm(first.w[e / 2], second.w[e / 2], e % 2 ? 0x7632 : 0x5410);
        } else {
          b[h] = widen_pair<T>(
              __byte_perm(first.w[e / 4], second.w[e / 4], unsigned(e % 4 | (4 + e % 4) << 4)));
        }
      }
      float(&to)[4] = run.sums[j * VL::kElements + e];
      to[0] *= factor, to[1] *= factor;
      mma<T>(to, weights, b[0], b[1]);
    }
  }
}

// Column d of head g of a share: to be merged, or the result where there is one share alone.
template <int D, class T, class K>
__device__ __forceinline__ void write_share(const DecodeArgs<T, K>& a, int64_t token, int kv_head,
                                            int split, int parts, int g, int d, WarpsSum v) {
  if (parts > 1) {
    const int64_t at = ((token * a.kv_heads + kv_head) * a.splits + split) * a.group + g;
    a.sums[at * D + d] = v.sum;
    if (d == 0) a.stats[at] = make_float2(v.largest, v.total);
  } else {
    const int64_t head = int64_t(kv_head) * a.group + g;
    a.out.at(token, head, D)[d] = from_f32<T>(v.sum / v.total);
    if (d == 0) a.lse.set(token, head, (v.largest + log2f(v.total)) * kLn2);
  }
}

template <class T, class K, int D>
__global__ void __launch_bounds__(kThreads) decode_kernel(DecodeArgs<T, K> a) {
  enter();
  using VL = Deal<K, D, 8>;
  using S = Stage<K, D>;
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ bool last;
  const int64_t token = blockIdx.z;
  const int kv_head = int(blockIdx.y), split = int(blockIdx.x);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, r = lane / 4, c = lane % 4;
  const int s = sequence_of(a.sequences, token);
  if (s < 0) return;
  const Sequence sequence = a.sequences.p[s];
  const int visible = visible_keys(sequence, token), share = share_of(visible, a.splits);
  const int parts = (visible + share - 1) / share;
  const int begin = split * share, end = min(visible, begin + share);
  if (begin >= end) return;

  std::byte* const stages = memory + warp * kStages * S::kBytes;
  const auto ask = [&](int stage, int key) {
    request<T, K, D>(stages + stage * S::kBytes, a, int64_t(sequence.kv_begin) + key, kv_head,
                     min(kKeys, end - key));
  };
  constexpr int kStep = kKeys * kWarps;
#pragma unroll
  for (int i = 0; i < kStages; ++i) ask(i, begin + kKeys * warp + i * kStep);
  uint32_t q[D / 16][2];
  {
    // The columns in the order in which the keys come.
    using KL = Deal<K, D, 4>;
    const T* p = a.q.at(token, int64_t(kv_head) * a.group + r, D) + c * KL::kElements;
#pragma unroll
    for (int j = 0; j < KL::kPieces; ++j) {
#pragma unroll
      for (int e = 0; e < KL::kElements / 2; ++e) {
        const int pair = j * (KL::kElements / 2) + e;
        q[pair / 2][pair % 2] =
            r < a.group ? *reinterpret_cast<const uint32_t*>(p + j * 4 * KL::kElements + 2 * e) : 0;
      }
    }
  }
  QueryRows<D> run;
  int stage = 0;
  for (int key = begin + kKeys * warp; key < end; key += kStep) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    attend_rows<T, K, D>(run, q, stages + stage * S::kBytes, a.scale, min(kKeys, end - key));
    ask(stage, key + kStages * kStep);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  // What is still on its way are the empty groups behind the end.
  __syncthreads();  // the memory of keys and values becomes that of the sums
  float* const sums = reinterpret_cast<float*>(memory);  // [kWarps][kGroup][D]
  float2* const stats = reinterpret_cast<float2*>(sums + kWarps * kGroup * D);
  if (c == 0) stats[warp * kGroup + r] = make_float2(run.largest, run.total);
#pragma unroll
  for (int t = 0; t < D / 8; ++t) {
    // Column n of this product: see `request`.
    const int base = t / VL::kElements * 8 * VL::kElements + t % VL::kElements;
    float* const row = sums + (warp * kGroup + r) * D + base;
    row[2 * c * VL::kElements] = run.sums[t][0];
    row[(2 * c + 1) * VL::kElements] = run.sums[t][1];
  }
  __syncthreads();
  const int64_t share0 = (token * a.kv_heads + kv_head) * a.splits;
  for (int i = int(threadIdx.x); i < a.group * D; i += kThreads) {
    const int g = i / D, d = i % D;
    write_share<D>(a, token, kv_head, split, parts, g, d,
                   sum_of_warps<kWarps>(stats + g, sums + g * D + d, kGroup, D));
  }
  if (parts == 1) return;
  __threadfence();  // the share is written before it is counted
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned* const done = a.done + token * a.kv_heads + kv_head;
    last = atomicAdd(done, 1u) == unsigned(parts - 1);
    if (last) *done = 0;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  for (int g = warp; g < a.group; g += kWarps) {
    merge<T, K, D>(a, token, kv_head, share0, g, parts);
  }
}

template <class T, class K, int D>
__global__ void __launch_bounds__(kThreads) teams_kernel(DecodeArgs<T, K> a) {
  enter();
  extern __shared__ __align__(16) std::byte memory[];
  const int64_t token = blockIdx.z;
  const int kv_head = int(blockIdx.y), split = int(blockIdx.x);
  const int found = sequence_of(a.sequences, token);
  if (found < 0) return;
  const Share share(token, kv_head, split, a.splits, a.sequences.p[found]);
  if (share.begin >= share.end) return;
  const WholeBlock team;
  begin_share<T, K, D, kStages>(a, share, team, memory);
  const int64_t share0 = (token * a.kv_heads + kv_head) * a.splits;
  finish_share<T, K, D, kStages>(
      a, share, team, memory, a.q.at(token, int64_t(kv_head) * a.group, D), [](std::byte*, int) {},
      [&](int g, int d, float sum, float largest, float total) {
        write_share<D>(a, token, kv_head, split, share.parts, g, d, {largest, total, sum});
      });
  if (share.parts == 1) return;
  // The share is written before it is counted; the block that is done last merges.
  __shared__ bool last;
  if (threadIdx.x == 0) {
    unsigned* const done = a.done + token * a.kv_heads + kv_head;
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(done)
                 : "memory");
    last = before == unsigned(share.parts - 1);
    if (last) *done = 0;
  }
  __syncthreads();
  if (!last) return;
  for (int g = int(threadIdx.x) / 32; g < a.group; g += kWarps) {
    merge<T, K, D>(a, token, kv_head, share0, g, share.parts);
  }
}

template <class T, class K, int D>
void decode(const Context& c, const AttentionCall& call) {
  const auto args = decode_args<T, K, D>(c, call);
  const bool one = c.one_launch_a_token && call.tokens() == 1;
  const auto kernel = one ? teams_kernel<T, K, D> : decode_kernel<T, K, D>;
  allow_shared(c, kernel);
  launch(c,
         {dim3(unsigned(args.splits), unsigned(args.kv_heads), unsigned(call.tokens())),
          dim3(kThreads), shared_bytes<K, D>()},
         kernel, args);
}

template <class T, class K>
void decode(const Context& c, const AttentionCall& call) {
  if (call.width() == 128) {
    decode<T, K, 128>(c, call);
  } else {
    decode<T, K, 64>(c, call);
  }
}

}  // namespace

bool attention_decode(const Context& c, const AttentionCall& a) {
  if (!tensor_core_types(a) || a.group() > kGroup ||
      a.tokens() > kFewQueries * a.sequences.dim(0) || a.tokens() > 65535 ||
      !heads_aligned(a.out, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  with_attention_types(a, [&](auto t, auto k) { decode<decltype(t), decltype(k)>(c, a); });
  return true;
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Attention for few queries a sequence and long caches (Flash-Decoding): split-KV with the last
// block combining. 16-bit or f8_e4m3 cache, heads of 64 or 128, at most eight query heads a key
// head; chosen for up to eight queries a sequence on average where attention_decode_many.cu does
// not apply.
//
// Grid (splits, key heads, tokens), a block is one warpgroup of attention_split_kv.cuh. Each split
// writes unnormalised output, row maximum and row sum to scratch and counts itself (atomic,
// acq_rel); the last one combines all splits in order. One token's sums have the order of
// decode/token_kernel.cuh.
//
// Keys, not query heads, are the M dimension of the mma: with the heads there, of which at most 8
// of 16 rows are used, 4 sequences on an H200 decoded about 4 % fewer tokens a second.
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/attention/attention_split_kv.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

using namespace split_kv;

constexpr int64_t kMaxMeanQueries = 8;  // a sequence, on average

// Column d of head g of a split: a partial, or the result where there is one split.
template <int D, class T, class K>
__device__ __forceinline__ void store_split(const DecodeArgs<T, K>& a, int64_t token, int kv_head,
                                            int split, int active_splits, int g, int d,
                                            CombinedWarps v) {
  if (active_splits > 1) {
    const int64_t at = ((token * a.kv_heads + kv_head) * a.splits + split) * a.group + g;
    a.sums[at * D + d] = v.sum;
    if (d == 0) a.stats[at] = make_float2(v.row_max, v.row_sum);
  } else {
    const int64_t head = int64_t(kv_head) * a.group + g;
    a.out.at(token, head, D)[d] = from_f32<T>(v.sum / v.row_sum);
    if (d == 0) a.lse.set(token, head, (v.row_max + log2f(v.row_sum)) * kLn2);
  }
}

template <class T, class K, int D>
__global__ void __launch_bounds__(kThreads) decode_kernel(DecodeArgs<T, K> a) {
  pdl_enter();
  extern __shared__ __align__(16) std::byte memory[];
  const int64_t token = blockIdx.z;
  const int kv_head = int(blockIdx.y), split = int(blockIdx.x);
  const int found = sequence_of(a.sequences, token);
  if (found < 0) return;
  const KvSplit range(token, kv_head, split, a.splits, a.sequences.p[found]);
  if (range.begin >= range.end) return;
  const WholeBlock warpgroup;
  prefetch_split<T, K, D, kStages>(a, range, warpgroup, memory);
  const int64_t first_partial = (token * a.kv_heads + kv_head) * a.splits;
  attend_split<T, K, D, kStages>(
      a, range, warpgroup, memory, a.q.at(token, int64_t(kv_head) * a.group, D),
      [](std::byte*, int) {},
      [&](int g, int d, float sum, float row_max, float row_sum) {
        store_split<D>(a, token, kv_head, split, range.active_splits, g, d,
                       {row_max, row_sum, sum});
      });
  if (range.active_splits == 1) return;
  // Partials are written before the count; the last block combines.
  __shared__ bool last;
  if (threadIdx.x == 0) {
    unsigned* const done = a.done + token * a.kv_heads + kv_head;
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(done)
                 : "memory");
    last = before == unsigned(range.active_splits - 1);
    if (last) *done = 0;
  }
  __syncthreads();
  if (!last) return;
  for (int g = int(threadIdx.x) / 32; g < a.group; g += kWarps) {
    combine_splits<T, K, D>(a, token, kv_head, first_partial, g, range.active_splits);
  }
}

template <class T, class K, int D>
void decode(const Context& c, const AttentionCall& call) {
  const auto args = decode_args<T, K, D>(c, call);
  const auto kernel = decode_kernel<T, K, D>;
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
      a.tokens() > kMaxMeanQueries * a.sequences.dim(0) || a.tokens() > 65535 ||
      !heads_aligned(a.out, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  with_attention_types(a, [&](auto t, auto k) { decode<decltype(t), decltype(k)>(c, a); });
  return true;
}

}  // namespace nibble::cuda

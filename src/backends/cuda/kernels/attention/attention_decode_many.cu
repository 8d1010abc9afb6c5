// SPDX-License-Identifier: MIT
// Attention for one or few queries each of many sequences: so many (token, key head) pairs, at
// least one an SM, that the keys need not be split. Heads of 64 or 128, 16-bit cache of q's type,
// at most eight query heads a key head. First choice of attention().
//
// Grid (key heads, tokens); a block of four warps takes all query heads of the key head (GQA), so
// keys and values are read once. Warps take 16 keys in turn, three cp.async stages each (six where
// heads are half as wide), with an online softmax, and are combined in order.
//
// Bound by memory. What decides is that keys are loaded in whole rows: on an H200 the copies of 32
// x 512 keys alone take 16.8 us so (4.0 TB/s), and 22.7 in the pieces of 64 bytes that
// attention_decode.cu loads; two stages instead of three take 21.9.
//
// Together with split_heads it is one launch (split_heads_attention; attention_many_heads.cuh): the
// block applies bias or QK-norm and RoPE to its own heads, writes the new key and value to the
// cache and into its last tile, and prefetches the older keys before the projection has ended
// (PDL). Apart, both took 24.1 us of a layer of 32 sequences of 512 keys, 22.9 where only the keys
// were prefetched.
//
// mma roles: keys (then columns of the values) are M, the query heads are N. Lane = 4 r + c.
#include <algorithm>
#include <cmath>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/attention/attention_many_heads.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

using namespace decode_many;

constexpr int64_t kMaxMeanQueries = 8;  // a sequence, on average

template <class T>
struct ManyArgs {
  Heads<T> out;
  LseView lse;
  Heads<const T> q, k, v;
  Sequences sequences;
  int group;
  float scale;  // with log2 e
};

// A warp's online softmax of heads 2 c and 2 c + 1; sums[m]: of those heads, columns 16 m + r (0,
// 1) and 16 m + r + 8 (2, 3). row_sum: of this lane's keys alone.
template <int D>
struct OnlineSoftmax {
  float sums[D / 16][4] = {};
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0, 0};
};

// Starts copying `count` (at most 16) rows of keys or values, 512 bytes a warp at a time; the
// others become zero.
template <class T, int D>
__device__ __forceinline__ void load_rows_async(uint32_t tile, const T* from, int64_t stride,
                                                int count) {
  constexpr int kChunks = D / 8, kTogether = 32 / kChunks;  // rows
  const int lane = int(threadIdx.x) % 32, row = lane / kChunks, chunk = lane % kChunks;
  const SharedTile<D> to{tile};
  const T* p = from + row * stride + chunk * 8;
#pragma unroll
  for (int i = 0; i < kKeys; i += kTogether) {
    const bool wanted = row + i < count;
    cp_async16(to.at(row + i, chunk), wanted ? p : from, wanted);
    p += kTogether * stride;
  }
}

template <class T, int D>
__device__ __forceinline__ void attend(OnlineSoftmax<D>& run, const uint32_t (&q)[D / 16][2],
                                       uint32_t stage, float scale, int count) {
  const SharedTile<D> keys{stage}, values{stage + Sizes<D>::kTileBytes};
  const int r = int(threadIdx.x) % 32 / 4;
  float even[4] = {}, odd[4] = {};  // keys r (0, 1) and r + 8 (2, 3); heads 2 c and 2 c + 1
#pragma unroll
  for (int s = 0; s < D / 16; s += 2) {
    uint32_t a[4], b[4];
    keys.load_a(a, 0, s);
    keys.load_a(b, 0, s + 1);
    mma<T>(even, a, q[s][0], q[s][1]);
    mma<T>(odd, b, q[s + 1][0], q[s + 1][1]);
  }
  float p[4], factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    p[h] = r < count ? (even[h] + odd[h]) * scale : -INFINITY;
    p[2 + h] = r + 8 < count ? (even[2 + h] + odd[2 + h]) * scale : -INFINITY;
    const float row_max = fmaxf(run.row_max[h], across_keys<Max>(fmaxf(p[h], p[2 + h])));
    factor[h] = exp2_fast(run.row_max[h] - row_max);
    p[h] = exp2_fast(p[h] - row_max), p[2 + h] = exp2_fast(p[2 + h] - row_max);
    run.row_sum[h] = fmaf(run.row_sum[h], factor[h], p[h] + p[2 + h]);
    run.row_max[h] = row_max;
  }
  // P from D layout (key, heads) to B layout (head, keys).
  const uint32_t low = movmatrix_transpose(pack_pair<T>(p[0], p[1]));
  const uint32_t high = movmatrix_transpose(pack_pair<T>(p[2], p[3]));
#pragma unroll
  for (int m = 0; m < D / 16; ++m) {
    uint32_t v[4];
    values.load_b_rows(v, 0, 2 * m);
    const uint32_t columns[4] = {v[0], v[2], v[1], v[3]};
    float(&to)[4] = run.sums[m];
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] *= factor[i % 2];
    mma<T>(to, columns, low, high);
  }
}

// The sequence of a token, for whole warps; q_len 0: none.
__device__ __forceinline__ Sequence find_sequence(const Sequences& s, int64_t token) {
  const int lane = int(threadIdx.x) % 32;
  Sequence found = {};
  for (int first = 0; first < s.count; first += 32) {
    Sequence mine = {};
    if (first + lane < s.count) mine = s.p[first + lane];
    const bool here = token >= mine.q_begin && token < int64_t(mine.q_begin) + mine.q_len;
    const unsigned lanes = __ballot_sync(0xffffffffu, here);
    if (!lanes) continue;
    const int from = __ffs(int(lanes)) - 1;
    found.q_begin = __shfl_sync(0xffffffffu, mine.q_begin, from);
    found.q_len = __shfl_sync(0xffffffffu, mine.q_len, from);
    found.kv_begin = __shfl_sync(0xffffffffu, mine.kv_begin, from);
    found.kv_len = __shfl_sync(0xffffffffu, mine.kv_len, from);
    break;
  }
  return found;
}

template <class T, int D, FusedHeads kFused>
__global__ void __launch_bounds__(kThreads, 2) attention_many_kernel(ManyArgs<T> a, NewHeads<T> n) {
  using S = Sizes<D>;
  constexpr bool kHeads = kFused != FusedHeads::none;
  constexpr int kStages = S::kStages, kTileBytes = S::kTileBytes, kStageBytes = S::kStageBytes,
                kSumStride = S::kSumStride;
  extern __shared__ __align__(256) std::byte memory[];
  if constexpr (!kHeads) pdl_enter();
  const int64_t token = blockIdx.y;
  const int kv_head = int(blockIdx.x);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, r = lane / 4, c = lane % 4;
  const Sequence sequence = find_sequence(a.sequences, token);
  if (sequence.q_len == 0) {
    if constexpr (kHeads) pdl_enter();
    return;
  }
  const int visible = visible_keys(sequence, token);
  const int cached = kHeads ? visible - 1 : visible;  // keys that come from the cache

  const uint32_t stages = shared_address(memory) + uint32_t(warp * kStages * kStageBytes);
  const auto load_async = [&](uint32_t stage, int key) {
    if (key < visible) {
      const int64_t slot = int64_t(sequence.kv_begin) + key;
      load_rows_async<T, D>(stage, a.k.at(slot, kv_head, D), a.k.stride, cached - key);
      load_rows_async<T, D>(stage + kTileBytes, a.v.at(slot, kv_head, D), a.v.stride, cached - key);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  const auto load_first_stages = [&] {
#pragma unroll
    for (int i = 0; i < kStages; ++i)
      load_async(stages + uint32_t(i * kStageBytes), kKeys * warp + i * kStep);
  };
  // Query loads before those of keys, or as bulk copies: loads return in order.
  uint32_t q[D / 16][2];
  const BlockHeads<T, D> own{memory + S::kShared, a.group};
  const auto load_query_fragments = [&](const T* queries) {
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      q[i / 2][i % 2] =
          r < a.group ? *reinterpret_cast<const uint32_t*>(queries + r * D + 2 * c + 8 * i) : 0;
    }
  };
  if constexpr (kHeads) {
    if (sequence.q_len != 1) __trap();  // the keys between would be those of other blocks
    if (threadIdx.x == 0) {
      mbarrier_init(own.full_barrier(), 1);
      mbarrier_init_fence();
    }
    // None of this is written by the projection: may be read before pdl_wait.
    const AnyFloats table = n.template table_of<D>(token);
    const auto load_heads = [&] {
      load_first_stages();
      pdl_enter();
      if (threadIdx.x == 0) own.load_async(n, token, kv_head);
      __syncthreads();  // the barrier is initialised
    };
    if constexpr (kFused == FusedHeads::biased) {
      static_assert(kHeadsOfWarp == 3);
      const HeadFactors<D> factors({}, table);
      const auto bias = [&](int k) {
        return own.bias_of(n, min(warp + k * kWarps, a.group + 1), a.group, kv_head);
      };
      const HeadBias<D> biases[] = {bias(0), bias(1), bias(2)};
      const int64_t slot = n.slots[token];
      load_heads();
      own.bias_and_rotate(n, factors, biases, slot * a.k.stride + kv_head * D,
                          slot * a.v.stride + kv_head * D);
    } else {
      const HeadFactors<D> for_queries(n.q_norm, table), for_key(n.k_norm, table);
      const int64_t slot = n.slots[token];
      load_heads();
      own.norm_and_rotate(n, for_queries, for_key, slot * a.k.stride + kv_head * D,
                          slot * a.v.stride + kv_head * D);
    }
    __syncthreads();
    load_query_fragments(own.head(0));
  } else {
    load_query_fragments(a.q.at(token, int64_t(kv_head) * a.group, D));
    load_first_stages();
  }

  OnlineSoftmax<D> run;
  uint32_t stage = stages;
  for (int key = kKeys * warp; key < visible; key += kStep) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    __syncwarp();
    if (kHeads && key + kKeys >= visible) own.insert_new_key(stage, visible - 1 - key);
    attend<T, D>(run, q, stage, a.scale, visible - key);
    __syncwarp();
    load_async(stage, key + kStages * kStep);
    stage = stage + kStageBytes == stages + kStages * kStageBytes ? stages : stage + kStageBytes;
  }
  // Only empty cp.async groups are left in flight.
  __syncthreads();  // the memory of keys and values becomes that of the sums
  float* const sums = reinterpret_cast<float*>(memory);  // [kWarps][kGroup][kSumStride]
  float2* const stats = reinterpret_cast<float2*>(sums + kWarps * kGroup * kSumStride);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float row_sum = across_keys<Sum>(run.row_sum[h]);
    if (r == 0) stats[warp * kGroup + 2 * c + h] = make_float2(run.row_max[h], row_sum);
  }
#pragma unroll
  for (int m = 0; m < D / 16; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[(warp * kGroup + 2 * c + i % 2) * kSumStride + 16 * m + r + 8 * (i / 2)] =
          run.sums[m][i];
    }
  }
  __syncthreads();
  constexpr int kTogether = kThreads / D;  // heads
  const int d = kTogether == 1 ? int(threadIdx.x) : int(threadIdx.x) % D;
  for (int g = kTogether == 1 ? 0 : int(threadIdx.x) / D; g < a.group; g += kTogether) {
    const auto [row_max, row_sum, sum] =
        combine_warps<kWarps>(stats + g, sums + g * kSumStride + d, kGroup, kSumStride);
    const int64_t head = int64_t(kv_head) * a.group + g;
    a.out.at(token, head, D)[d] = from_f32<T>(sum / row_sum);
    if (d == 0) a.lse.set(token, head, (row_max + log2f(row_sum)) * kLn2);
  }
}

bool fits(const Context& c, const AttentionCall& a) {
  static_assert(Sizes<128>::kShared >= Sizes<64>::kShared);
  return Sizes<128>::kShared + Sizes<128>::kHeadsShared <= c.shared_per_block &&
         tensor_core_types(a) && a.kv.k.dtype == a.q.dtype && a.group() <= kGroup &&
         // From 0.4 pairs of a token and a key head an SM on: 32 sequences of two key heads are
         // decoded a fifth to a half faster than by splitting the keys, one of eight is not touched.
         5 * a.tokens() * a.kv_heads() >= 2 * c.sm_count &&
         a.tokens() <= kMaxMeanQueries * a.sequences.dim(0) && a.tokens() <= 65535 &&
         heads_aligned(a.out, a.q, a.kv.k, a.kv.v);
}

template <FusedHeads kFused, class T, int D>
void launch_with(const Context& c, const AttentionCall& a, const NewHeads<T>& n) {
  const ManyArgs<T> args{heads<T>(a.out),        lse_view(a.lse),
                         heads<const T>(a.q),    heads<const T>(a.kv.k),
                         heads<const T>(a.kv.v), sequences_of(a.sequences),
                         int(a.group()),         kLog2E / std::sqrt(float(D))};
  const auto kernel = attention_many_kernel<T, D, kFused>;
  allow_shared(c, kernel);
  const size_t heads_shared = kFused == FusedHeads::none ? 0 : Sizes<D>::kHeadsShared;
  launch(c,
         {dim3(unsigned(a.kv_heads()), unsigned(a.tokens())), dim3(kThreads),
          Sizes<D>::kShared + heads_shared},
         kernel, args, n);
}
template <FusedHeads kFused, class T>
void launch_many(const Context& c, const AttentionCall& a, const NewHeads<T>& n) {
  a.width() == 64 ? launch_with<kFused, T, 64>(c, a, n) : launch_with<kFused, T, 128>(c, a, n);
}

}  // namespace

bool attention_decode_many(const Context& c, const AttentionCall& a) {
  if (!fits(c, a)) return false;
  with_attention_types(a, [&](auto t, auto) {
    using T = decltype(t);
    launch_many<FusedHeads::none, T>(c, a, {});
  });
  return true;
}

bool split_heads_attention(const Context& c, Tensor out, Tensor lse, const HeadSlots& heads,
                           KvView kv, Tensor qkv, const HeadParams& params, Tensor table,
                           Tensor slots, Tensor sequences, double eps) {
  const AttentionCall call{{heads.q, kv, sequences}, out, lse};
  // Training keeps q and k, or attends over them in place.
  const bool heads_wanted = heads.q_rstd || heads.k_rstd || kv.k.data == heads.k.data;
  if (c.capability < 90 || heads_wanted || call.tokens() != sequences.dim(0) || !fits(c, call) ||
      qkv.dtype != heads.q.dtype ||
      !in_packs<8>(qkv, params.q_norm, params.k_norm, params.bias, table)) {
    return false;
  }
  with_attention_types(call, [&](auto t, auto) {
    using T = decltype(t);
    const int64_t key_at = call.q_heads() * call.width();
    const NewHeads<T> n{ptr<const T>(qkv),
                        qkv.row_stride,
                        key_at,
                        key_at + call.kv_heads() * call.width(),
                        ptr<T>(kv.k),
                        ptr<T>(kv.v),
                        AnyFloats(params.q_norm),
                        AnyFloats(params.k_norm),
                        AnyFloats(table),
                        ptr<const int32_t>(slots),
                        float(eps),
                        AnyFloats(params.bias),
                        int(std::min(params.still.begin, call.width())),
                        params.still.factor};
    if (n.bias.data) {
      launch_many<FusedHeads::biased, T>(c, call, n);
    } else {
      launch_many<FusedHeads::normalised, T>(c, call, n);
    }
  });
  return true;
}

}  // namespace nibble::cuda

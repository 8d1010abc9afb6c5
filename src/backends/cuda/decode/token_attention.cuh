// SPDX-License-Identifier: MIT
// Attention of one token inside token_kernel.cuh: split-KV with an online softmax
// (attention_split_kv.cuh), heads of D = 64 or 128, for one sequence.
//
// Work: (key head, split) pairs, number = split * kv_heads + kv_head; a block takes number
// blockIdx.x, then every gridDim.x-th. Its first four warps (a warpgroup) attend. Up to group + 2
// warps first make the heads, one each: bias or QK-norm and RoPE of the queries of that key head,
// and of this token's key and value, which go to the cache and straight into the stage of the split
// that holds their slot. So heads are recomputed by every block that attends with them. With
// several splits, each writes unnormalised sums, row maximum and row sum as flagged words, and all
// splits combine: split s takes the groups of 32 columns s, s + splits, ...
//
// Barriers (bar.sync ids): 1 within the warpgroup, 2 heads written, 3 heads read.
//
// Bound by latency: this code runs once a layer with one warp a scheduler, five clocks an
// instruction. Hence what is the same for all layers is computed once, and nothing is done by one
// warp after another that several can do at once.
#pragma once
#include "backends/cuda/decode/sentinel_words.cuh"
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device_functions/gemv_units.cuh"
#include "backends/cuda/device_functions/rotate_head.cuh"
#include "backends/cuda/kernels/attention/attention_split_kv.cuh"

namespace nibble::cuda {

constexpr int kAttentionStages = 1;  // pipeline depth: stages of 16 keys a warp

// The four warps that attend: the first of the block, with named barrier 1.
struct Warpgroup {
  __device__ __forceinline__ int thread() const { return int(threadIdx.x); }
  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync 1, %0;" ::"n"(split_kv::kThreads) : "memory");
  }
};

// The warps that make heads, one each: `group` queries, the key, the value. The warpgroup is among
// them.
struct HeadWarps {
  int count;
  __device__ __forceinline__ explicit HeadWarps(int group)
      : count(max(group + 2, split_kv::kWarps)) {}
  // Heads are in shared memory: the warpgroup waits for that, the other warps only arrive.
  __device__ __forceinline__ void sync_written(bool in_warpgroup) const {
    if (in_warpgroup) {
      asm volatile("bar.sync 2, %0;" ::"r"(32 * count) : "memory");
    } else {
      asm volatile("bar.arrive 2, %0;" ::"r"(32 * count) : "memory");
    }
  }
  // Heads have been read: shared memory may be overwritten for the next split.
  __device__ __forceinline__ void sync_read() const {
    asm volatile("bar.sync 3, %0;" ::"r"(32 * count) : "memory");
  }
};
static_assert(split_kv::kGroup + 2 <= kTokenWarps);

// Shared memory behind the stages of keys and values.
template <class K, int D>
struct AttentionSmem {
  alignas(16) bf16 queries[split_kv::kGroup * D];
  alignas(16) K key[D], value[D];  // of this token
};

template <class K, int D>
constexpr size_t kAttentionKeyBytes = split_kv::shared_bytes<K, D, kAttentionStages>();
template <class K, int D>
constexpr size_t kAttentionSmemBytes = kAttentionKeyBytes<K, D> + sizeof(AttentionSmem<K, D>);

// kBias: heads have one (and no norms).
template <class K, int D, bool kBias>
struct TokenAttention {
  static constexpr int kHead = D, kOwn = D / 32;  // columns of a lane
  // The same for all layers. In shared memory: attention is where registers are short.
  struct Place {
    alignas(16) float rope[kHead];
    Sequence sequence;
    int slot;
    bool attends;             // this block has a split ...
    split_kv::KvSplit range;  // ... and this is its first
  };
  const TokenArgs& a;
  const Place& place;
  std::byte* memory;  // kAttentionSmemBytes
  Warpgroup warpgroup;

  // The caller has a barrier of the block between this and any use.
  __device__ __forceinline__ TokenAttention(const TokenArgs& a, Place& place, std::byte* memory)
      : a(a), place(place), memory(memory) {
    if (threadIdx.x == 0) {
      place.sequence = *a.sequence, place.slot = *a.slot;
      place.range = range(int(blockIdx.x));
      place.attends =
          int(blockIdx.x) < a.kv_heads * a.splits && place.range.begin < place.range.end;
    }
    if (threadIdx.x < kHead) place.rope[threadIdx.x] = a.rope[threadIdx.x];
  }

  __device__ __forceinline__ split_kv::DecodeArgs<bf16, K> args(const TokenLayer& layer) const {
    return {{},
            {},
            {},
            {static_cast<const K*>(layer.cache_k), a.k_stride},
            {static_cast<const K*>(layer.cache_v), a.v_stride},
            {},
            nullptr,
            nullptr,
            nullptr,
            a.kv_heads,
            a.q_heads / a.kv_heads,
            a.splits,
            a.scale};
  }

  // Prologue of the first split: starts the copies of its keys and values.
  __device__ __forceinline__ void begin(const TokenLayer& layer) const {
    if (int(threadIdx.x) < split_kv::kThreads && place.attends) prefetch_split(layer, place.range);
  }

  // `words`: offset of this layer's sentinel words from the first layer's; flag: of its flagged
  // words.
  __device__ __forceinline__ void attend(const TokenLayer& layer, uint32_t flag, int words) const {
    if (!place.attends) return;
    const int warp = int(threadIdx.x) / 32, group = a.q_heads / a.kv_heads;
    const HeadWarps head_warps(group);
    if (warp >= head_warps.count) return;
    const bool in_warpgroup = warp < split_kv::kWarps;
    const int first = int(blockIdx.x), all = a.kv_heads * a.splits;
#pragma unroll 1
    for (int number = first; number < all; number += int(gridDim.x)) {
      const split_kv::KvSplit s = range_of(number);
      if (s.begin >= s.end) break;
      if (number != first) {
        head_warps.sync_read();
        if (in_warpgroup) prefetch_split(layer, s);
      }
      load_head(layer, s, a.qkv + words, warp, group);
      head_warps.sync_written(in_warpgroup);
      if (in_warpgroup) attend_range(layer, s, flag, a.att + words);
    }
    // A second loop: a split that is combined may be the second one of another block.
#pragma unroll 1
    for (int number = first; in_warpgroup && number < all; number += int(gridDim.x)) {
      const split_kv::KvSplit s = range_of(number);
      if (s.begin >= s.end || s.active_splits == 1) break;
      const int chunks = group * (kHead / 32);
      for (int i = warp; s.split + i * s.active_splits < chunks; i += split_kv::kWarps) {
        combine_columns(s, s.split + i * s.active_splits, flag, a.att + words);
      }
    }
  }

 private:
  __device__ __forceinline__ AttentionSmem<K, D>& smem() const {
    return *reinterpret_cast<AttentionSmem<K, D>*>(memory + kAttentionKeyBytes<K, D>);
  }
  __device__ __forceinline__ void prefetch_split(const TokenLayer& layer,
                                                 const split_kv::KvSplit& s) const {
    split_kv::prefetch_split<bf16, K, kHead, kAttentionStages>(args(layer), s, warpgroup, memory);
  }
  __device__ __forceinline__ bool has_new_key(const split_kv::KvSplit& s) const {
    const int new_key = place.slot - int(place.sequence.kv_begin);
    return s.begin <= new_key && new_key < s.end;
  }

  __device__ __forceinline__ split_kv::KvSplit range(int number) const {
    const int split = number / a.kv_heads;
    return split_kv::KvSplit(0, number - split * a.kv_heads, split, a.splits, place.sequence);
  }
  __device__ __forceinline__ split_kv::KvSplit range_of(int number) const {
    return number == int(blockIdx.x) ? place.range : range(number);
  }

  static __device__ __forceinline__ AnyFloats floats_at(const float* p) {
    AnyFloats f;
    f.data = const_cast<float*>(p);
    return f;
  }

  // Spins for this lane's columns of a head.
  static __device__ __forceinline__ void spin_for_columns(float (&v)[kOwn], const uint32_t* from) {
    if constexpr (kOwn == 4) {
      uint2 w[1];
      spin_for_pairs(w, [&](int) { return from; });
      load_f32<4>(reinterpret_cast<const bf16*>(&w[0]), v);
    } else {
      const uint32_t w = spin_for_pair(from);
      load_f32<2>(reinterpret_cast<const bf16*>(&w), v);
    }
  }
  static __device__ __forceinline__ void norm_and_rotate(float (&v)[kOwn], const HeadFactors<D>& f,
                                                         bool norm, float eps) {
    if (norm) normalise_head<bf16>(v, f, eps);
    rotate_head(v, f);
    round(v);
  }
  static __device__ __forceinline__ void round(float (&v)[kOwn]) {
#pragma unroll
    for (int k = 0; k < kOwn; ++k) v[k] = to_f32(from_f32<bf16>(v[k]));
  }

  // One head by one warp: a query head, or this token's key or value where the split holds its
  // slot.
  __device__ __forceinline__ void load_head(const TokenLayer& layer, const split_kv::KvSplit& s,
                                            const uint32_t* qkv, int warp, int group) const {
    const bool query = warp < group, key = warp == group;
    if (!query && (warp > group + 1 || !has_new_key(s))) return;
    const int lane = int(threadIdx.x) % 32;
    const int head =
        query ? s.kv_head * group + warp : a.q_heads + (key ? 0 : a.kv_heads) + s.kv_head;
    const uint32_t* const from = qkv + (head * kHead + kOwn * lane) / 2;
    float v[kOwn];
    if constexpr (kBias) {
      const HeadFactors<D> factors({}, floats_at(place.rope));
      const HeadBias<D> bias(layer.q_norm, head, key ? a.still : kHead, a.still_factor);
      spin_for_columns(v, from);
      bias.add(v);
      if (query || key) {
        rotate_head(v, factors);
        bias.take_still(v);
      }
      round(v);
    } else {
      const AnyFloats& norm = query ? layer.q_norm : layer.k_norm;
      const HeadFactors<D> factors(norm, floats_at(place.rope));  // loaded before the poll
      spin_for_columns(v, from);
      if (query || key) norm_and_rotate(v, factors, bool(norm), a.eps);
    }
    if (query) {
      store_f32<kOwn>(smem().queries + warp * kHead + kOwn * lane, v);
    } else {
      store_f32<kOwn>((key ? smem().key : smem().value) + kOwn * lane, v);
      K* const cache = static_cast<K*>(key ? layer.cache_k : layer.cache_v) +
                       place.slot * (key ? a.k_stride : a.v_stride) + s.kv_head * kHead;
      store_f32<kOwn>(cache + kOwn * lane, v);
    }
  }

  __device__ __forceinline__ void attend_range(const TokenLayer& layer, const split_kv::KvSplit& s,
                                               uint32_t flag, uint32_t* att) const {
    const int group = a.q_heads / a.kv_heads, new_key = place.slot - int(place.sequence.kv_begin);
    const int first = s.kv_head * group * a.splits + s.split;
    split_kv::attend_split<bf16, K, kHead, kAttentionStages>(
        args(layer), s, warpgroup, memory, smem().queries,
        [&](std::byte* stage, int key) {
          if (has_new_key(s) && key <= new_key && new_key < key + split_kv::kKeys) {
            split_kv::insert_key<K, kHead>(stage, new_key - key, smem().key, smem().value);
          }
        },
        [&](int g, int d, float sum, float row_max, float row_sum) {
          if (s.active_splits > 1) {
            const int at = first + g * a.splits;
            publish_word(a.partials + at * kHead + d, __float_as_uint(sum), flag);
            if (d == 0) {
              publish_words(a.stats + at * 2, __float_as_uint(row_max), __float_as_uint(row_sum),
                            flag);
            }
          } else {
            publish_columns(att, s.kv_head * group + g, d, sum / row_sum);
          }
        });
  }

  // One output column a lane, neighbours in neighbouring lanes; published as pairs.
  __device__ __forceinline__ void publish_columns(uint32_t* att, int head, int d, float v) const {
    const float next = __shfl_down_sync(0xffffffffu, v, 1);
    const uint32_t pair = scaled_pair(pack_pair<bf16>(v, next));
    if (d % 2 == 0) publish_pair(att + (head * kHead + d) / 2, pair);
  }

  // The combine of split_kv::combine_splits for 32 columns by one warp, a column a lane, in the
  // same order. Partials are polled in batches of kBatch, as each further wait is a round trip to
  // the L2 cache.
  __device__ __forceinline__ void combine_columns(const split_kv::KvSplit& s, int chunk,
                                                  uint32_t flag, uint32_t* att) const {
    constexpr int kBatch = 12;
    const int lane = int(threadIdx.x) % 32, group = a.q_heads / a.kv_heads;
    const int g = chunk / (kHead / 32), d = chunk % (kHead / 32) * 32 + lane;
    const int first = (s.kv_head * group + g) * a.splits;
    const uint64_t* column = a.partials + first * kHead + d;
    const uint64_t* const stats = a.stats + (first + lane) * 2;
    float weight[2], row_sum = 0, sum = 0;  // weights: rescaling of splits split0 + lane, + 32
#pragma unroll 1
    for (int split0 = 0; split0 < s.active_splits; split0 += kBatch) {
      const int left = s.active_splits - split0;
      FlaggedWords of_lane[2] = {};
      // A split that does not exist has weight 0, and -0 times 0 changes no sum.
      uint64_t w[kBatch];
#pragma unroll
      for (uint64_t& word : w) word = 0x80000000u;
      bool all;
      SpinWatchdog watchdog;
      do {
        watchdog.tick();
        all = true;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (split0 == 0 && 32 * h + lane < s.active_splits)
            of_lane[h] = try_load_words(stats + 64 * h);
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          if (b < left) w[b] = try_load_word(column + b * kHead);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (split0 == 0 && 32 * h + lane < s.active_splits)
            all = all && of_lane[h].has_flag(flag);
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          if (b < left) all = all && uint32_t(w[b] >> 32) == flag;
        }
      } while (!all);
      __syncwarp();
      if (split0 == 0) {
        float2 mine[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          mine[h] = make_float2(-INFINITY, 0);
          if (32 * h + lane < s.active_splits) {
            mine[h] = make_float2(__uint_as_float(of_lane[h].data().x),
                                  __uint_as_float(of_lane[h].data().y));
          }
        }
        const float row_max = warp_reduce<Max>(fmaxf(mine[0].x, mine[1].x));
#pragma unroll
        for (int h = 0; h < 2; ++h) weight[h] = exp2_fast(mine[h].x - row_max);
        row_sum = warp_reduce<Sum>(fmaf(mine[0].y, weight[0], mine[1].y * weight[1]));
      }
      float of_split[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) of_split[b] = __shfl_sync(0xffffffffu, weight[0], b);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        sum = fmaf(__uint_as_float(uint32_t(w[b])), of_split[b], sum);
      }
      if (left > kBatch) {
        const int from = (lane + kBatch) % 32;
        const float low = __shfl_sync(0xffffffffu, weight[0], from);
        weight[1] = __shfl_sync(0xffffffffu, weight[1], from);
        weight[0] = lane + kBatch < 32 ? low : weight[1];
        column += kBatch * kHead;
      }
    }
    publish_columns(att, s.kv_head * group + g, d, sum / row_sum);
  }
};

}  // namespace nibble::cuda

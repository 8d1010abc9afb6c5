// SPDX-License-Identifier: MIT
// Attention of one token inside the kernel of a whole token, by the first four warps of a block, a
// team: heads are normalised and rotated by the team that attends with them, this token's key and
// value go to the cache and into the share that holds their slot. Where the keys of a head are cut
// into shares, every share's team merges some of the columns.
#pragma once
#include "backends/cuda/decode/tagged_words.cuh"
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device/head_of_128.cuh"
#include "backends/cuda/device/token_units.cuh"
#include "backends/cuda/kernels/attention_shares.cuh"

namespace nibble::cuda {

constexpr int kHead = 128;     // the width of a head
constexpr int kTeamDepth = 1;  // times 16 keys a warp on their way

// A block's first four warps.
struct Team {
  __device__ __forceinline__ int thread() const { return int(threadIdx.x); }
  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync 1, %0;" ::"n"(shares::kThreads) : "memory");
  }
};

// What it needs besides the memory of its keys.
template <class K>
struct TeamMemory {
  alignas(16) bf16 queries[shares::kGroup * kHead];
  alignas(16) K key[kHead], value[kHead];  // of this token
};

template <class K>
constexpr size_t kTeamKeyBytes = shares::shared_bytes<K, kHead, kTeamDepth>();
template <class K>
constexpr size_t kTeamBytes = kTeamKeyBytes<K> + sizeof(TeamMemory<K>);

template <class K>
struct TokenAttention {
  const TokenArgs& a;
  Sequence sequence;
  int slot;
  std::byte* memory;  // kTeamBytes
  Team team;

  __device__ __forceinline__ TokenAttention(const TokenArgs& a, std::byte* memory)
      : a(a), sequence(*a.sequence), slot(*a.slot), memory(memory) {}

  __device__ __forceinline__ shares::Share share(int number) const {
    const int split = number / a.kv_heads;
    return shares::Share(0, number - split * a.kv_heads, split, a.splits, sequence);
  }
  __device__ __forceinline__ shares::DecodeArgs<bf16, K> args(const TokenLayer& layer) const {
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

  // A block takes every gridDim.x-th share. Asks for the keys and values of its first.
  __device__ __forceinline__ void begin(const TokenLayer& layer) const {
    const int number = int(blockIdx.x);
    if (int(threadIdx.x) >= shares::kThreads || number >= a.kv_heads * a.splits) return;
    const shares::Share s = share(number);
    if (s.begin < s.end) begin_share(layer, s);
  }

  __device__ __forceinline__ void attend(const TokenLayer& layer, uint32_t tag) const {
    if (int(threadIdx.x) >= shares::kThreads) return;
    const int first = int(blockIdx.x), all = a.kv_heads * a.splits;
    for (int number = first; number < all; number += int(gridDim.x)) {
      const shares::Share s = share(number);
      if (s.begin >= s.end) break;
      if (number != first) begin_share(layer, s);
      take_heads(layer, s, tag);
      give_share(layer, s, tag);
    }
    // Only now: what is merged may be another team's second share.
    for (int number = first; number < all; number += int(gridDim.x)) {
      const shares::Share s = share(number);
      if (s.begin >= s.end || s.parts == 1) break;
      const int chunks = a.q_heads / a.kv_heads * (kHead / 32), warp = team.thread() / 32;
      for (int i = warp; s.split + i * s.parts < chunks; i += shares::kWarps) {
        merge_columns(s, s.split + i * s.parts, tag);
      }
    }
  }

 private:
  __device__ __forceinline__ TeamMemory<K>& own() const {
    return *reinterpret_cast<TeamMemory<K>*>(memory + kTeamKeyBytes<K>);
  }
  __device__ __forceinline__ void begin_share(const TokenLayer& layer,
                                              const shares::Share& s) const {
    shares::begin_share<bf16, K, kHead, kTeamDepth>(args(layer), s, team, memory);
  }
  __device__ __forceinline__ bool has_fresh(const shares::Share& s) const {
    const int fresh = slot - int(sequence.kv_begin);
    return s.begin <= fresh && fresh < s.end;
  }

  static __device__ __forceinline__ void unpack(float (&v)[4], uint2 raw) {
    load_f32<4>(reinterpret_cast<const bf16*>(&raw), v);
  }
  static __device__ __forceinline__ void turn(float (&v)[4], const HeadFactors& f, bool norm,
                                              float eps) {
    if (norm) normalise_head<bf16>(v, f, eps);
    rotate_head(v, f);
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = to_f32(from_f32<bf16>(v[k]));
  }

  // The queries of the key head, and this token's key and value where the share holds its slot.
  __device__ __forceinline__ void take_heads(const TokenLayer& layer, const shares::Share& s,
                                             uint32_t tag) const {
    constexpr int kMost = shares::kGroup / shares::kWarps;
    const int lane = int(threadIdx.x) % 32, warp = team.thread() / 32;
    const int group = a.q_heads / a.kv_heads;
    const bool fresh = has_fresh(s) && warp < 2;
    const uint64_t* const queries = a.qkv + (s.kv_head * group * kHead + 4 * lane) / 2;
    const uint64_t* const pair =
        a.qkv + ((a.q_heads + warp * a.kv_heads + s.kv_head) * kHead + 4 * lane) / 2;
    const HeadFactors q_factors(layer.q_norm, a.rope);
    const HeadFactors k_factors(layer.k_norm, a.rope);
    const auto query = [&](int i) {
      const int g = warp + i * shares::kWarps;
      return queries + (g < group ? g : 0) * kHead / 2;
    };
    Words w[kMost + 1];
    await_words(w, tag, [&](int i) { return i < kMost ? query(i) : fresh ? pair : query(0); });
    float v[4];
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int g = warp + i * shares::kWarps;
      if (g >= group) continue;
      unpack(v, w[i].data());
      turn(v, q_factors, bool(layer.q_norm), a.eps);
      store_f32<4>(own().queries + g * kHead + 4 * lane, v);
    }
    if (fresh) {
      unpack(v, w[kMost].data());
      if (warp == 0) turn(v, k_factors, bool(layer.k_norm), a.eps);
      store_f32<4>((warp == 0 ? own().key : own().value) + 4 * lane, v);
      K* const cache = static_cast<K*>(warp == 0 ? layer.cache_k : layer.cache_v) +
                       slot * (warp == 0 ? a.k_stride : a.v_stride) + s.kv_head * kHead;
      store_f32<4>(cache + 4 * lane, v);
    }
    team.sync();
  }

  __device__ __forceinline__ void give_share(const TokenLayer& layer, const shares::Share& s,
                                             uint32_t tag) const {
    const int group = a.q_heads / a.kv_heads, fresh = slot - int(sequence.kv_begin);
    const int first = (s.kv_head * a.splits + s.split) * group;
    shares::finish_share<bf16, K, kHead, kTeamDepth>(
        args(layer), s, team, memory, own().queries,
        [&](std::byte* stage, int key) {
          if (has_fresh(s) && key <= fresh && fresh < key + shares::kKeys) {
            shares::place_key<K, kHead>(stage, fresh - key, own().key, own().value);
          }
        },
        [&](int g, int d, float sum, float largest, float total) {
          if (s.parts > 1) {
            put_word(a.shares + (first + g) * kHead + d, __float_as_uint(sum), tag);
            if (d == 0) {
              put_words(a.stats + (first + g) * 2, __float_as_uint(largest), __float_as_uint(total),
                        tag);
            }
          } else {
            put_columns(s.kv_head * group + g, d, sum / total, tag);
          }
        });
  }

  // A column of a head's output, one a lane, neighbours in neighbouring lanes.
  __device__ __forceinline__ void put_columns(int head, int d, float v, uint32_t tag) const {
    const float next = __shfl_down_sync(0xffffffffu, v, 1);
    const uint32_t pair = scaled_pair(pack_pair<bf16>(v, next));
    if (d % 2 == 0) put_word(a.att + (head * kHead + d) / 2, pair, tag);
  }

  // As shares::merge, of 32 columns by one warp: a column a lane.
  __device__ __forceinline__ void merge_columns(const shares::Share& s, int chunk,
                                                uint32_t tag) const {
    constexpr int kBatch = 8;
    const int lane = int(threadIdx.x) % 32, group = a.q_heads / a.kv_heads;
    const int g = chunk / (kHead / 32), d = chunk % (kHead / 32) * 32 + lane;
    const int first = s.kv_head * a.splits * group + g;
    const uint64_t* const column = a.shares + first * kHead + d;
    const int step = group * kHead;
    float2 mine[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int part = 32 * h + lane;
      mine[h] = make_float2(-INFINITY, 0);
      if (part < s.parts) {
        Words w[1];
        await_words(w, tag, [&](int) { return a.stats + (first + part * group) * 2; });
        mine[h] = make_float2(__uint_as_float(w[0].data().x), __uint_as_float(w[0].data().y));
      }
    }
    __syncwarp();
    const float largest = warp_reduce<Max>(fmaxf(mine[0].x, mine[1].x));
    float weight[2], sum = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) weight[h] = exp2_fast(mine[h].x - largest);
    const float total = warp_reduce<Sum>(fmaf(mine[0].y, weight[0], mine[1].y * weight[1]));
#pragma unroll 1
    for (int part0 = 0; part0 < s.parts; part0 += kBatch) {
      uint64_t w[kBatch];
      await_words(w, tag, [&](int b) { return column + min(part0 + b, s.parts - 1) * step; });
      __syncwarp();
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const float of_part =
            __shfl_sync(0xffffffffu, part0 < 32 ? weight[0] : weight[1], part0 % 32 + b);
        if (part0 + b < s.parts) sum = fmaf(__uint_as_float(uint32_t(w[b])), of_part, sum);
      }
    }
    put_columns(s.kv_head * group + g, d, sum / total, tag);
  }
};

}  // namespace nibble::cuda

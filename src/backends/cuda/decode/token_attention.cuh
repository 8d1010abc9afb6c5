// SPDX-License-Identifier: MIT
// Attention of one token inside the kernel of a whole token, by the first four warps of a block, a
// team: heads are normalised and rotated by the team that attends with them, this token's key and
// value go to the cache and into the share that holds their slot. Where the keys of a head are cut
// into shares, every share's team merges some of the columns.
#pragma once
#include "backends/cuda/decode/open_words.cuh"
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
  alignas(16) float q_norm[kHead], k_norm[kHead];
};

template <class K>
constexpr size_t kTeamKeyBytes = shares::shared_bytes<K, kHead, kTeamDepth>();
template <class K>
constexpr size_t kTeamBytes = kTeamKeyBytes<K> + sizeof(TeamMemory<K>);

template <class K>
struct TokenAttention {
  // The same for all layers. In shared memory: attention is where registers are short.
  struct Place {
    alignas(16) float rope[kHead];
    Sequence sequence;
    int slot;
  };
  const TokenArgs& a;
  const Place& place;
  std::byte* memory;  // kTeamBytes
  Team team;

  // Before a barrier of the block.
  __device__ __forceinline__ TokenAttention(const TokenArgs& a, Place& place, std::byte* memory)
      : a(a), place(place), memory(memory) {
    if (threadIdx.x == 0) place.sequence = *a.sequence, place.slot = *a.slot;
    if (threadIdx.x < kHead) place.rope[threadIdx.x] = a.rope[threadIdx.x];
  }

  __device__ __forceinline__ shares::Share share(int number) const {
    const int split = number / a.kv_heads;
    return shares::Share(0, number - split * a.kv_heads, split, a.splits, place.sequence);
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

  // A block takes every gridDim.x-th share. Asks for the keys and values of its first, and for what
  // its heads are multiplied with: a load behind the product would hold up those that wait for it.
  __device__ __forceinline__ void begin(const TokenLayer& layer) const {
    const int number = int(blockIdx.x);
    if (int(threadIdx.x) >= shares::kThreads || number >= a.kv_heads * a.splits) return;
    const shares::Share s = share(number);
    if (s.begin >= s.end) return;
    const int t = int(threadIdx.x) % 32;
    const bool query = threadIdx.x < 32;
    const AnyFloats& norm = query ? layer.q_norm : layer.k_norm;
    if (threadIdx.x < 64 && is_staged(norm)) {
      copy_async(shared_address((query ? own().q_norm : own().k_norm) + 4 * t),
                 static_cast<const float*>(norm.data) + 4 * t, true);
    }
    begin_share(layer, s);
  }

  // `words`: how much further than the first layer's this layer's words lie.
  __device__ __forceinline__ void attend(const TokenLayer& layer, uint32_t tag, int words) const {
    if (int(threadIdx.x) >= shares::kThreads) return;
    const int first = int(blockIdx.x), all = a.kv_heads * a.splits;
    asm volatile("cp.async.wait_all;" ::: "memory");
    team.sync();
    for (int number = first; number < all; number += int(gridDim.x)) {
      const shares::Share s = share(number);
      if (s.begin >= s.end) break;
      if (number != first) begin_share(layer, s);
      take_heads(layer, s, a.qkv + words);
      give_share(layer, s, tag, a.att + words);
    }
    // Only now: what is merged may be another team's second share.
    for (int number = first; number < all; number += int(gridDim.x)) {
      const shares::Share s = share(number);
      if (s.begin >= s.end || s.parts == 1) break;
      const int chunks = a.q_heads / a.kv_heads * (kHead / 32), warp = team.thread() / 32;
      for (int i = warp; s.split + i * s.parts < chunks; i += shares::kWarps) {
        merge_columns(s, s.split + i * s.parts, tag, a.att + words);
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
    const int fresh = place.slot - int(place.sequence.kv_begin);
    return s.begin <= fresh && fresh < s.end;
  }

  // Norms in f32 are copied to shared memory, others are read where they are.
  static __device__ __forceinline__ bool is_staged(const AnyFloats& norm) {
    return norm && norm.type == DType::f32;
  }
  static __device__ __forceinline__ AnyFloats floats_at(const float* p) {
    AnyFloats f;
    f.data = const_cast<float*>(p);
    return f;
  }
  __device__ __forceinline__ HeadFactors factors(const AnyFloats& norm, const float* staged) const {
    return HeadFactors(is_staged(norm) ? floats_at(staged) : norm, floats_at(place.rope));
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
                                             const uint32_t* qkv) const {
    constexpr int kMost = shares::kGroup / shares::kWarps;
    const int lane = int(threadIdx.x) % 32, warp = team.thread() / 32;
    const int group = a.q_heads / a.kv_heads;
    const bool fresh = has_fresh(s) && warp < 2;
    const uint32_t* const queries = qkv + (s.kv_head * group * kHead + 4 * lane) / 2;
    const uint32_t* const pair =
        qkv + ((a.q_heads + warp * a.kv_heads + s.kv_head) * kHead + 4 * lane) / 2;
    const HeadFactors q_factors = factors(layer.q_norm, own().q_norm);
    const HeadFactors k_factors = factors(layer.k_norm, own().k_norm);
    const auto query = [&](int i) {
      const int g = warp + i * shares::kWarps;
      return queries + (g < group ? g : 0) * kHead / 2;
    };
    uint2 w[kMost + 1];
    await_pairs(w, [&](int i) { return i < kMost ? query(i) : fresh ? pair : query(0); });
    float v[4];
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int g = warp + i * shares::kWarps;
      if (g >= group) continue;
      unpack(v, w[i]);
      turn(v, q_factors, bool(layer.q_norm), a.eps);
      store_f32<4>(own().queries + g * kHead + 4 * lane, v);
    }
    if (fresh) {
      unpack(v, w[kMost]);
      if (warp == 0) turn(v, k_factors, bool(layer.k_norm), a.eps);
      store_f32<4>((warp == 0 ? own().key : own().value) + 4 * lane, v);
      K* const cache = static_cast<K*>(warp == 0 ? layer.cache_k : layer.cache_v) +
                       place.slot * (warp == 0 ? a.k_stride : a.v_stride) + s.kv_head * kHead;
      store_f32<4>(cache + 4 * lane, v);
    }
    team.sync();
  }

  __device__ __forceinline__ void give_share(const TokenLayer& layer, const shares::Share& s,
                                             uint32_t tag, uint32_t* att) const {
    const int group = a.q_heads / a.kv_heads, fresh = place.slot - int(place.sequence.kv_begin);
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
            put_columns(att, s.kv_head * group + g, d, sum / total);
          }
        });
  }

  // A column of a head's output, one a lane, neighbours in neighbouring lanes.
  __device__ __forceinline__ void put_columns(uint32_t* att, int head, int d, float v) const {
    const float next = __shfl_down_sync(0xffffffffu, v, 1);
    const uint32_t pair = scaled_pair(pack_pair<bf16>(v, next));
    if (d % 2 == 0) put_pair(att + (head * kHead + d) / 2, pair);
  }

  // As shares::merge, of 32 columns by one warp: a column a lane. What the shares have left is
  // asked for together, up to kBatch of them: each wait for one more thing is a way to the L2 cache
  // and back.
  __device__ __forceinline__ void merge_columns(const shares::Share& s, int chunk, uint32_t tag,
                                                uint32_t* att) const {
    constexpr int kBatch = 12;
    const int lane = int(threadIdx.x) % 32, group = a.q_heads / a.kv_heads;
    const int g = chunk / (kHead / 32), d = chunk % (kHead / 32) * 32 + lane;
    const int first = s.kv_head * a.splits * group + g;
    const uint64_t* const column = a.shares + first * kHead + d;
    const int step = group * kHead;
    Words stats[2] = {};
    uint64_t w[kBatch] = {};
    const auto await = [&](int part0, bool with_stats) {
      bool all;
      Patience patience;
      do {
        patience.use();
        all = true;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (with_stats && 32 * h + lane < s.parts) {
            stats[h] = ask_words(a.stats + (first + (32 * h + lane) * group) * 2);
          }
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          if (part0 + b < s.parts) w[b] = ask_word(column + (part0 + b) * step);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (with_stats && 32 * h + lane < s.parts) all = all && stats[h].tagged(tag);
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          if (part0 + b < s.parts) all = all && uint32_t(w[b] >> 32) == tag;
        }
      } while (!all);
      __syncwarp();
    };
    await(0, true);
    float2 mine[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      mine[h] = make_float2(-INFINITY, 0);
      if (32 * h + lane < s.parts) {
        mine[h] =
            make_float2(__uint_as_float(stats[h].data().x), __uint_as_float(stats[h].data().y));
      }
    }
    const float largest = warp_reduce<Max>(fmaxf(mine[0].x, mine[1].x));
    float weight[2], sum = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) weight[h] = exp2_fast(mine[h].x - largest);
    const float total = warp_reduce<Sum>(fmaf(mine[0].y, weight[0], mine[1].y * weight[1]));
#pragma unroll 1
    for (int part0 = 0; part0 < s.parts; part0 += kBatch) {
      if (part0 > 0) await(part0, false);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int part = part0 + b;
        const float of_part =
            __shfl_sync(0xffffffffu, part < 32 ? weight[0] : weight[1], part % 32);
        if (part < s.parts) sum = fmaf(__uint_as_float(uint32_t(w[b])), of_part, sum);
      }
    }
    put_columns(att, s.kv_head * group + g, d, sum / total);
  }
};

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Attention of one token inside the kernel of a whole token: heads are normalised and rotated by
// the team that attends with them, this token's key and value go to the cache and into the share
// that holds their slot.
#pragma once
#include "backends/cuda/decode/grid_barrier.cuh"
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/decode/token_clock.cuh"
#include "backends/cuda/device/head_of_128.cuh"
#include "backends/cuda/kernels/attention_shares.cuh"

namespace nibble::cuda {

constexpr int kHead = 128;  // the width of a head

// Four of a block's warps.
struct Team {
  int number;
  __device__ __forceinline__ int thread() const { return int(threadIdx.x) % shares::kThreads; }
  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(number + 1), "n"(shares::kThreads) : "memory");
  }
};

// What a team needs besides the memory of its keys.
template <class K>
struct TeamMemory {
  alignas(16) bf16 queries[shares::kGroup * kHead];
  alignas(16) K key[kHead], value[kHead];  // of this token
};

template <class K>
constexpr int kTeams = shares::kResident<K, kHead>;
template <class K>
constexpr size_t kTeamBytes = shares::shared_bytes<K, kHead>() + sizeof(TeamMemory<K>);

// One head of the projection, normalised and rotated where it has factors; to `out` as bf16.
__device__ __forceinline__ void read_head(float (&v)[4], const bf16* x) {
  const uint2 raw = __ldcg(reinterpret_cast<const uint2*>(x) + threadIdx.x % 32);
  const bf16* e = reinterpret_cast<const bf16*>(&raw);
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = to_f32(e[k]);
}
__device__ __forceinline__ void turn_head(float (&v)[4], const HeadFactors& f, bool norm,
                                          float eps) {
  if (norm) normalise_head<bf16>(v, f, eps);
  rotate_head(v, f);
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = to_f32(from_f32<bf16>(v[k]));
}

// Attention of the layer, by teams; `memory` is kTeams x kTeamBytes. Arrives once before (qkv is
// written), and leaves the arrival after it to the caller. A warp calls ready() when it has done
// its part: most have none.
template <class K, class Clock, class Ready>
__device__ __forceinline__ void attention_phase(const TokenArgs& a, const TokenLayer& layer,
                                                const Sequence& sequence, int slot,
                                                GridBarrier& grid, std::byte* memory, Clock& clock,
                                                Ready&& ready) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32 % shares::kWarps;
  const Team team{int(threadIdx.x) / shares::kThreads};
  const int number = int(blockIdx.x) + int(gridDim.x) * team.number, group = a.q_heads / a.kv_heads;
  const int kv_head = number % a.kv_heads, split = number / a.kv_heads;
  const shares::Share share(0, kv_head, split, a.splits, sequence);
  const bool active = team.number < kTeams<K> && split < a.splits && share.begin < share.end;
  const shares::DecodeArgs<bf16, K> args{{a.att, 0},
                                         {},
                                         {},
                                         {static_cast<const K*>(layer.cache_k), a.k_stride},
                                         {static_cast<const K*>(layer.cache_v), a.v_stride},
                                         {},
                                         a.share_sums,
                                         a.share_stats,
                                         a.share_done,
                                         a.kv_heads,
                                         group,
                                         a.splits,
                                         a.scale};
  std::byte* const mine = memory + team.number * kTeamBytes<K>;
  grid.arrive();
  if (!active) {
    ready();
    grid.wait();
    clock.add(Mark::qkv_wait);
    return;
  }
  shares::begin_share<bf16, K, kHead>(args, share, team, mine);
  const HeadFactors q_factors(layer.q_norm, a.rope, 0, 1.0f);
  const HeadFactors k_factors(layer.k_norm, a.rope, 0, 1.0f);
  grid.wait();
  clock.add(Mark::qkv_wait);

  auto& own = *reinterpret_cast<TeamMemory<K>*>(mine + shares::shared_bytes<K, kHead>());
  for (int g = warp; g < group; g += shares::kWarps) {
    float v[4];
    read_head(v, a.qkv + (kv_head * group + g) * kHead);
    turn_head(v, q_factors, bool(layer.q_norm), a.eps);
    store_f32<4>(own.queries + g * kHead + 4 * lane, v);
  }
  // This token's key and value belong to the share that holds its slot.
  const int fresh = slot - int(sequence.kv_begin);
  const bool has_fresh = share.begin <= fresh && fresh < share.end;
  if (has_fresh && warp < 2) {
    float v[4];
    read_head(v, a.qkv + (a.q_heads + warp * a.kv_heads + kv_head) * kHead);
    if (warp == 0) turn_head(v, k_factors, bool(layer.k_norm), a.eps);
    K* const row = warp == 0 ? own.key : own.value;
    store_f32<4>(row + 4 * lane, v);
    K* const cache = static_cast<K*>(warp == 0 ? layer.cache_k : layer.cache_v) +
                     slot * (warp == 0 ? a.k_stride : a.v_stride) + kv_head * kHead;
    store_f32<4>(cache + 4 * lane, v);
  }
  team.sync();
  shares::finish_share<bf16, K, kHead>(
      args, share, team, mine, own.queries, [&](std::byte* stage, int key) {
        if (has_fresh && key <= fresh && fresh < key + shares::kKeys) {
          shares::place_key<K, kHead>(stage, fresh - key, own.key, own.value);
        }
      });
  ready();
}

}  // namespace nibble::cuda

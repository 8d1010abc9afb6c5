// SPDX-License-Identifier: MIT
// split_heads inside attention_decode_many.cu: a block makes its own heads of the new token,
// `group` queries, the key and the value, in shared memory (bias or QK-norm, RoPE), writes key and
// value to the cache and puts them into a tile of keys and values. The bits are those of
// split_heads.cu and rotate_heads.cu.
#pragma once
#include "backends/cuda/device_functions/bulk_copy.cuh"
#include "backends/cuda/device_functions/rotate_head.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"

namespace nibble::cuda::decode_many {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kKeys = 16;                                         // of a warp's stage
constexpr int kStep = kKeys * kWarps;                             // keys of a step of the block
constexpr int kGroup = 8;                                         // query heads a key head, at most
constexpr int kHeadsOfWarp = (kGroup + 2 + kWarps - 1) / kWarps;  // with the key and the value

// Sizes for heads of D.
template <int D>
struct Sizes {
  static constexpr int kStages = 3 * 128 / D;  // per warp; two blocks fit on an SM
  static constexpr int kTileBytes = kKeys * D * 2, kStageBytes = 2 * kTileBytes;
  static constexpr int kSumStride = D + 1;  // between heads, so that the lanes' banks differ
  static constexpr size_t kShared = size_t(kWarps) * kStages * kStageBytes;
  static constexpr int kHeadBytes = D * 2;
  static constexpr size_t kHeadsShared =
      size_t(kGroup + 2) * kHeadBytes + 16;  // q, k, v heads and a barrier
  static_assert(kShared >= size_t(kWarps) * kGroup * (kSumStride * sizeof(float) + sizeof(float2)));
};

// Whether split_heads is part of it, and what heads have besides a rotation.
enum class FusedHeads { none, normalised, biased };

// Arguments of the fused split_heads.
template <class T>
struct NewHeads {
  const T* qkv;
  int64_t qkv_stride, key_at, value_at;  // in a row of qkv
  T *cache_k, *cache_v;
  AnyFloats q_norm, k_norm, table;
  const int32_t* slots;
  float eps;
  AnyFloats bias;
  int still;  // StillPairs of the key's bias
  float still_factor;
  template <int D>
  __device__ __forceinline__ AnyFloats table_of(int64_t token) const {
    AnyFloats of = table;
    of.data = static_cast<std::byte*>(table.data) + token * D * (table.type == DType::f32 ? 4 : 2);
    return of;
  }
};

// One head as split_heads makes it, in place in shared memory, and in the cache.
template <class T, int D>
__device__ __forceinline__ void norm_and_rotate_head(T* head, const HeadFactors<D>& f, bool norm,
                                                     float eps, T* cached) {
  constexpr int kOwn = D / 32;
  const int at = kOwn * (int(threadIdx.x) % 32);
  float v[kOwn];
  load_f32<kOwn>(head + at, v);
  if (norm) normalise_head<T>(v, f, eps);
  rotate_head(v, f);
  store_f32<kOwn>(head + at, v);
  if (cached) store_f32<kOwn>(cached + at, v);
}
// The same with a bias; rotated: q and k.
template <class T, int D>
__device__ __forceinline__ void bias_and_rotate_head(T* head, const HeadFactors<D>& f,
                                                     const HeadBias<D>& bias, bool rotated,
                                                     T* cached) {
  constexpr int kOwn = D / 32;
  const int at = kOwn * (int(threadIdx.x) % 32);
  float v[kOwn];
  load_f32<kOwn>(head + at, v);
  bias.add(v);
  if (rotated) {
    rotate_head(v, f);
    bias.take_still(v);
  }
  store_f32<kOwn>(head + at, v);
  if (cached) store_f32<kOwn>(cached + at, v);
}

// The heads of this block in shared memory: `group` of the queries, the key, the value.
template <class T, int D>
struct BlockHeads {
  static constexpr int kHeadBytes = Sizes<D>::kHeadBytes, kChunks = D / 8;
  std::byte* memory;
  int group;
  __device__ __forceinline__ T* head(int i) const {
    return reinterpret_cast<T*>(memory + i * kHeadBytes);
  }
  __device__ __forceinline__ uint32_t full_barrier() const {
    return shared_address(memory + (kGroup + 2) * kHeadBytes);
  }
  // Bulk copies, issued by one thread.
  __device__ __forceinline__ void load_async(const NewHeads<T>& n, int64_t token,
                                             int kv_head) const {
    const T* const row = n.qkv + token * n.qkv_stride;
    const uint32_t to = shared_address(memory), queries = uint32_t(group * kHeadBytes);
    mbarrier_arrive_expect_tx(full_barrier(), queries + 2 * kHeadBytes);
    bulk_load(to, row + kv_head * group * D, queries, full_barrier());
    bulk_load(to + queries, row + n.key_at + kv_head * D, kHeadBytes, full_barrier());
    bulk_load(to + queries + kHeadBytes, row + n.value_at + kv_head * D, kHeadBytes,
              full_barrier());
  }
  // By all warps, a head at a time.
  __device__ __forceinline__ void norm_and_rotate(const NewHeads<T>& n,
                                                  const HeadFactors<D>& queries,
                                                  const HeadFactors<D>& key, int64_t cache_k,
                                                  int64_t cache_v) const {
    using Lane = std::conditional_t<D == 128, uint2, uint32_t>;  // of a head
    const int lane = int(threadIdx.x) % 32;
    mbarrier_wait_parity(full_barrier(), 0);
    for (int i = int(threadIdx.x) / 32; i < group + 2; i += kWarps) {
      if (i < group) {
        norm_and_rotate_head<T>(head(i), queries, bool(n.q_norm), n.eps, nullptr);
      } else if (i == group) {
        norm_and_rotate_head<T>(head(i), key, bool(n.k_norm), n.eps, n.cache_k + cache_k);
      } else {
        reinterpret_cast<Lane*>(n.cache_v + cache_v)[lane] =
            reinterpret_cast<const Lane*>(head(i))[lane];
      }
    }
  }
  // The same with a bias, whose loads for a warp's heads are all in flight at once.
  __device__ __forceinline__ void bias_and_rotate(const NewHeads<T>& n, const HeadFactors<D>& f,
                                                  const HeadBias<D> (&bias)[kHeadsOfWarp],
                                                  int64_t cache_k, int64_t cache_v) const {
    mbarrier_wait_parity(full_barrier(), 0);
#pragma unroll
    for (int k = 0; k < kHeadsOfWarp; ++k) {
      const int i = int(threadIdx.x) / 32 + k * kWarps;
      if (i >= group + 2) break;
      T* const cached = i < group    ? nullptr
                        : i == group ? n.cache_k + cache_k
                                     : n.cache_v + cache_v;
      bias_and_rotate_head<T>(head(i), f, bias[k], i <= group, cached);
    }
  }
  // The bias of head i of these: a query, the key or the value.
  static __device__ __forceinline__ HeadBias<D> bias_of(const NewHeads<T>& n, int i, int group,
                                                        int kv_head) {
    const int64_t head = i < group    ? int64_t(kv_head) * group + i
                         : i == group ? n.key_at / D + kv_head
                                      : n.value_at / D + kv_head;
    return HeadBias<D>(n.bias, head, i == group ? n.still : D, n.still_factor);
  }
  // The new key and value become row `row` of a warp's tiles.
  __device__ __forceinline__ void insert_new_key(uint32_t stage, int row) const {
    const int lane = int(threadIdx.x) % 32;
    if (2 * kChunks == 32 || lane < 2 * kChunks) {
      const SharedTile<D> tile{stage + uint32_t(lane / kChunks * Sizes<D>::kTileBytes)};
      const uint4 v = reinterpret_cast<const uint4*>(head(group + lane / kChunks))[lane % kChunks];
      store_chunk(tile.at(row, lane % kChunks), v.x, v.y, v.z, v.w);
    }
    __syncwarp();
  }
};

}  // namespace nibble::cuda::decode_many

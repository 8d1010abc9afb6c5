// SPDX-License-Identifier: MIT
// Split-KV attention (Flash-Decoding) for few queries and long caches: the work of one split. A
// warpgroup takes one token, one key head with all its query heads (GQA: keys and values are read
// once) and one range of keys; splits are combined in order. Used by attention_decode.cu and
// decode/token_attention.cuh, with the same bits. The number of splits comes from tensor shapes (so
// that launches can be recorded), their length from the sequence lengths in device memory.
//
// mma.m16n8k16 roles: keys, then columns of the values, are M; the query heads, at most eight, are
// N. Fragments are loaded from global memory in 16-byte pieces: a dot product does not care about
// the order of its columns, so a lane takes those that lie together (LaneLayout). cp.async stages
// in shared memory are private to a lane, which reads only what it has copied: no barrier. Lane = 4
// r + c.
#pragma once
#include <algorithm>
#include <cmath>

#include "backends/cuda/device_functions/reduce.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"

namespace nibble::cuda::split_kv {

constexpr int kWarps = 4;  // one warpgroup
constexpr int kThreads = 32 * kWarps;
constexpr int kKeys = 16;       // of a warp's stage
constexpr int kStages = 3;      // per warp, in attention_decode.cu
constexpr int kGroup = 8;       // query heads a key head, at most
constexpr int kMaxSplits = 64;  // two a lane in the combine

template <class T, class K>
struct DecodeArgs {
  Heads<T> out;
  LseView lse;
  Heads<const T> q;
  Heads<const K> k, v;
  Sequences sequences;
  float* sums;     // [tokens, Hkv, splits, group, D]
  float2* stats;   // [tokens, Hkv, splits, group]: row maximum, row sum
  unsigned* done;  // [tokens, Hkv]: splits written; zero between launches
  int kv_heads, group, splits;
  float scale;  // with log2 e
};

// Keys of a split, a multiple of the step; only the last split is shorter.
__device__ __forceinline__ int keys_per_split(int visible, int splits) {
  constexpr int kStep = kKeys * kWarps;
  return ((visible + splits - 1) / splits + kStep - 1) / kStep * kStep;
}

template <int kBytes>
struct alignas(kBytes) AlignedWords {
  uint32_t w[kBytes / 4];
};

// How a row of D elements of K is divided among `kLanes` lanes: pieces of kElements consecutive
// elements.
template <class K, int D, int kLanes>
struct LaneLayout {
  static constexpr int kFit = 16 / int(sizeof(K));
  static constexpr int kElements = kFit < D / kLanes ? kFit : D / kLanes;
  static constexpr int kPieces = D / (kLanes * kElements);
  static constexpr int kBytes = kElements * int(sizeof(K));
  using Piece = AlignedWords<kBytes>;
};

// The mma fragments of a key row (or query column) from this lane's pieces.
template <class T, class K, int D>
__device__ __forceinline__ void column_fragments(uint32_t (&f)[D / 16][2],
                                                 const typename LaneLayout<K, D, 4>::Piece* raw) {
  using L = LaneLayout<K, D, 4>;
#pragma unroll
  for (int j = 0; j < L::kPieces; ++j) {
#pragma unroll
    for (int e = 0; e < L::kElements / 2; ++e) {  // pairs
      const int pair = j * (L::kElements / 2) + e;
      if constexpr (std::is_same_v<T, K>) {
        f[pair / 2][pair % 2] = raw[j].w[e];
      } else {
        f[pair / 2][pair % 2] = widen_pair<T>(raw[j].w[e / 2] >> (16 * (e % 2)));
      }
    }
  }
}

// A warp's online softmax of heads 2 c and 2 c + 1. sums[m]: of those heads, elements m (0, 1) and
// m + D / 16 (2, 3) of this lane's pieces of a value row.
template <int D>
struct OnlineSoftmax {
  float sums[D / 16][4] = {};
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0, 0};
};

// A stage: 16 keys and values of a warp; piece by piece, lane 0, lane 1, ...
template <class K, int D>
struct Stage {
  using KL = LaneLayout<K, D, 4>;
  using VL = LaneLayout<K, D, 8>;
  static constexpr int kValues = 2 * KL::kPieces * 32 * KL::kBytes;
  static constexpr int kBytes = kValues + 4 * VL::kPieces * 32 * VL::kBytes;
  static __device__ __forceinline__ int key_piece(int t, int j) {
    return ((t * KL::kPieces + j) * 32 + int(threadIdx.x) % 32) * KL::kBytes;
  }
  static __device__ __forceinline__ int value_piece(int t, int j) {
    return kValues + ((t * VL::kPieces + j) * 32 + int(threadIdx.x) % 32) * VL::kBytes;
  }
};

template <int kBytes>
__device__ __forceinline__ void copy_piece(std::byte* to, const void* from, bool wanted) {
  if constexpr (kBytes == 16) {
    cp_async16(shared_address(to), from, wanted);
  } else {
    static_assert(kBytes == 8);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(wanted ? 8 : 0)
                 : "memory");
  }
}

// cp.async of a stage; keys behind `count` become zero and are not read.
template <class T, class K, int D>
__device__ __forceinline__ void load_kv_async(std::byte* stage, const DecodeArgs<T, K>& a,
                                              int64_t slot, int kv_head, int count) {
  using S = Stage<K, D>;
  using KL = typename S::KL;
  using VL = typename S::VL;
  const int lane = int(threadIdx.x) % 32, r = lane / 4, c = lane % 4;
  if (count > 0) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const int key = 8 * t + r;
      const K* p = a.k.at(slot + (key < count ? key : 0), kv_head, D) + c * KL::kElements;
#pragma unroll
      for (int j = 0; j < KL::kPieces; ++j) {
        copy_piece<KL::kBytes>(stage + S::key_piece(t, j), p + j * 4 * KL::kElements, key < count);
      }
    }
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int key = t / 2 * 8 + 2 * c + t % 2;
      const K* p = a.v.at(slot + (key < count ? key : 0), kv_head, D) + r * VL::kElements;
#pragma unroll
      for (int j = 0; j < VL::kPieces; ++j) {
        copy_piece<VL::kBytes>(stage + S::value_piece(t, j), p + j * 8 * VL::kElements,
                               key < count);
      }
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Overwrites entry `index` of a stage with a key and value that were computed after the copy was
// issued.
template <class K, int D>
__device__ __forceinline__ void insert_key(std::byte* stage, int index, const K* key,
                                           const K* value) {
  using S = Stage<K, D>;
  using KL = typename S::KL;
  using VL = typename S::VL;
  const int lane = int(threadIdx.x) % 32, r = lane / 4, c = lane % 4;
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    if (8 * t + r != index) continue;
#pragma unroll
    for (int j = 0; j < KL::kPieces; ++j) {
      *reinterpret_cast<typename KL::Piece*>(stage + S::key_piece(t, j)) =
          *reinterpret_cast<const typename KL::Piece*>(key + (4 * j + c) * KL::kElements);
    }
  }
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    if (t / 2 * 8 + 2 * c + t % 2 != index) continue;
#pragma unroll
    for (int j = 0; j < VL::kPieces; ++j) {
      *reinterpret_cast<typename VL::Piece*>(stage + S::value_piece(t, j)) =
          *reinterpret_cast<const typename VL::Piece*>(value + (8 * j + r) * VL::kElements);
    }
  }
}

// Element n of this lane's pieces of a value row, of two neighbouring keys, as a pair.
template <class T, class K, int D>
__device__ __forceinline__ uint32_t value_pair(
    const typename Stage<K, D>::VL::Piece (&values)[4][Stage<K, D>::VL::kPieces], int half, int n) {
  using VL = typename Stage<K, D>::VL;
  const int j = n / VL::kElements, e = n % VL::kElements;
  const typename VL::Piece &first = values[2 * half][j], &second = values[2 * half + 1][j];
  if constexpr (std::is_same_v<T, K>) {
    return __byte_perm(first.w[e / 2], second.w[e / 2], e % 2 ? 0x7632 : 0x5410);
  } else {
    return widen_pair<T>(
        __byte_perm(first.w[e / 4], second.w[e / 4], unsigned(e % 4 | (4 + e % 4) << 4)));
  }
}

template <class T, class K, int D>
__device__ __forceinline__ void attend(OnlineSoftmax<D>& run, const uint32_t (&q)[D / 16][2],
                                       const std::byte* stage, float scale, int count) {
  using S = Stage<K, D>;
  using KL = typename S::KL;
  using VL = typename S::VL;
  const int r = int(threadIdx.x) % 32 / 4;
  float scores[4] = {};  // keys r (0, 1) and r + 8 (2, 3); heads 2 c and 2 c + 1
  {
    uint32_t keys[2][D / 16][2];
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      typename KL::Piece raw[KL::kPieces];
#pragma unroll
      for (int j = 0; j < KL::kPieces; ++j) {
        raw[j] = *reinterpret_cast<const typename KL::Piece*>(stage + S::key_piece(t, j));
      }
      column_fragments<T, K, D>(keys[t], raw);
    }
#pragma unroll
    for (int s = 0; s < D / 16; ++s) {
      const uint32_t rows[4] = {keys[0][s][0], keys[1][s][0], keys[0][s][1], keys[1][s][1]};
      mma<T>(scores, rows, q[s][0], q[s][1]);
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
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float &low = scores[h], &high = scores[2 + h];
    low = r < count ? low * scale : -INFINITY;
    high = r + 8 < count ? high * scale : -INFINITY;
    const float row_max = fmaxf(run.row_max[h], across_keys<Max>(fmaxf(low, high)));
    factor[h] = exp2_fast(run.row_max[h] - row_max);
    low = exp2_fast(low - row_max), high = exp2_fast(high - row_max);
    run.row_sum[h] = fmaf(run.row_sum[h], factor[h], across_keys<Sum>(low + high));
    run.row_max[h] = row_max;
  }
  // P from D layout (key, heads) to B layout (head, keys).
  const uint32_t weights[2] = {movmatrix_transpose(pack_pair<T>(scores[0], scores[1])),
                               movmatrix_transpose(pack_pair<T>(scores[2], scores[3]))};
#pragma unroll
  for (int m = 0; m < D / 16; ++m) {
    const uint32_t rows[4] = {
        value_pair<T, K, D>(values, 0, m), value_pair<T, K, D>(values, 0, m + D / 16),
        value_pair<T, K, D>(values, 1, m), value_pair<T, K, D>(values, 1, m + D / 16)};
    float(&to)[4] = run.sums[m];
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] *= factor[i % 2];
    mma<T>(to, rows, weights[0], weights[1]);
  }
}

// Combines the splits of one head of a token in order, by one warp; they may come from other
// blocks.
template <class T, class K, int D>
__device__ __forceinline__ void combine_splits(const DecodeArgs<T, K>& a, int64_t token,
                                               int kv_head, int64_t first_partial, int g,
                                               int active_splits) {
  constexpr int kColumns = D / 32;
  const int lane = int(threadIdx.x) % 32;
  const int64_t first = first_partial * a.group + g;
  float2 mine[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int part = 32 * h + lane;
    mine[h] = make_float2(-INFINITY, 0);
    if (part < active_splits) mine[h] = __ldcg(a.stats + first + int64_t(part) * a.group);
  }
  const float row_max = warp_reduce<Max>(fmaxf(mine[0].x, mine[1].x));
  float weight[2], sum[kColumns] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) weight[h] = exp2_fast(mine[h].x - row_max);
  const float row_sum = warp_reduce<Sum>(fmaf(mine[0].y, weight[0], mine[1].y * weight[1]));
  using Columns = std::conditional_t<kColumns == 4, float4, float2>;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll 8
    for (int part = 32 * h; part < min(active_splits, 32 * h + 32); ++part) {
      const float w = __shfl_sync(0xffffffffu, weight[h], part % 32);
      const Columns x = __ldcg(reinterpret_cast<const Columns*>(
          a.sums + (first + int64_t(part) * a.group) * D + lane * kColumns));
      sum[0] = fmaf(x.x, w, sum[0]), sum[1] = fmaf(x.y, w, sum[1]);
      if constexpr (kColumns == 4) sum[2] = fmaf(x.z, w, sum[2]), sum[3] = fmaf(x.w, w, sum[3]);
    }
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum[i] /= row_sum;
  const int64_t head = int64_t(kv_head) * a.group + g;
  store_f32<kColumns>(a.out.at(token, head, D) + lane * kColumns, sum);
  if (lane == 0) a.lse.set(token, head, (row_max + log2f(row_sum)) * kLn2);
}

// Row pitch of the sums, padded against bank conflicts.
template <int D>
constexpr int kSumStride = D + 1;

template <class K, int D, int kDepth = kStages>
constexpr size_t shared_bytes() {
  return std::max(size_t(kWarps) * kDepth * Stage<K, D>::kBytes,
                  size_t(kWarps) * kGroup * (kSumStride<D> * sizeof(float) + sizeof(float2)) + 16);
}

// One split: keys begin .. end of those the token sees.
struct KvSplit {
  int64_t token;
  int kv_head, split, active_splits;
  int64_t kv_begin;  // slot of the sequence's first key
  int begin, end;    // begin >= end: there is nothing to do

  KvSplit() = default;
  __device__ __forceinline__ KvSplit(int64_t token, int kv_head, int split, int splits,
                                     const Sequence& sequence)
      : token(token), kv_head(kv_head), split(split), kv_begin(sequence.kv_begin) {
    const int visible = visible_keys(sequence, token), per_split = keys_per_split(visible, splits);
    active_splits = (visible + per_split - 1) / per_split;
    begin = split * per_split, end = min(visible, begin + per_split);
  }
};

constexpr int kStep = kKeys * kWarps;

// The warpgroup of a block that has no other. In a larger block it has its own thread number and
// named barrier.
struct WholeBlock {
  __device__ __forceinline__ int thread() const { return int(threadIdx.x); }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
};

template <class T, class K, int D>
__device__ __forceinline__ void load_split_keys_async(const DecodeArgs<T, K>& a, const KvSplit& s,
                                                      std::byte* stage, int key) {
  load_kv_async<T, K, D>(stage, a, s.kv_begin + key, s.kv_head, min(kKeys, s.end - key));
}

// Prologue: fills kDepth stages a warp.
template <class T, class K, int D, int kDepth, class Warpgroup>
__device__ __forceinline__ void prefetch_split(const DecodeArgs<T, K>& a, const KvSplit& s,
                                               const Warpgroup& warpgroup, std::byte* memory) {
  const int warp = warpgroup.thread() / 32;
  std::byte* const stages = memory + warp * kDepth * Stage<K, D>::kBytes;
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    load_split_keys_async<T, K, D>(a, s, stages + i * Stage<K, D>::kBytes,
                                   s.begin + kKeys * warp + i * kStep);
  }
}

// Mainloop and combine of the warps. queries: those of the key head. patch(stage, key) is called
// before keys key .. key + kKeys are used, by the lanes that hold them. emit(head, column, sum,
// row_max, row_sum) gets the unnormalised output of a column and the split's softmax statistics;
// the threads of a warp get neighbouring columns of one head. Ends with a barrier of the warpgroup
// behind all emit().
template <class T, class K, int D, int kDepth, class Warpgroup, class Patch, class Emit>
__device__ __forceinline__ void attend_split(const DecodeArgs<T, K>& a, const KvSplit& s,
                                             const Warpgroup& warpgroup, std::byte* memory,
                                             const T* queries, Patch&& patch, Emit&& emit) {
  using VL = LaneLayout<K, D, 8>;
  using S = Stage<K, D>;
  const int thread = warpgroup.thread(), lane = thread % 32, warp = thread / 32, r = lane / 4,
            c = lane % 4;
  std::byte* const stages = memory + warp * kDepth * S::kBytes;
  uint32_t q[D / 16][2];
  {
    // Query columns in the order of LaneLayout.
    using KL = LaneLayout<K, D, 4>;
    const T* p = queries + r * D + c * KL::kElements;
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
  OnlineSoftmax<D> run;
  int stage = 0;
  for (int key = s.begin + kKeys * warp; key < s.end; key += kStep) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kDepth - 1) : "memory");
    patch(stages + stage * S::kBytes, key);
    attend<T, K, D>(run, q, stages + stage * S::kBytes, a.scale, min(kKeys, s.end - key));
    load_split_keys_async<T, K, D>(a, s, stages + stage * S::kBytes, key + kDepth * kStep);
    stage = stage + 1 == kDepth ? 0 : stage + 1;
  }
  // Only empty cp.async groups are left in flight.
  warpgroup.sync();  // the memory of keys and values becomes that of the sums
  float* const sums = reinterpret_cast<float*>(memory);  // [kWarps][kGroup][D]
  float2* const stats = reinterpret_cast<float2*>(sums + kWarps * kGroup * kSumStride<D>);
  if (r == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      stats[warp * kGroup + 2 * c + h] = make_float2(run.row_max[h], run.row_sum[h]);
    }
  }
#pragma unroll
  for (int m = 0; m < D / 16; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // The column of element n of this lane's pieces (load_kv_async).
      const int n = m + i / 2 * (D / 16), head = 2 * c + i % 2;
      const int column = (n / VL::kElements * 8 + r) * VL::kElements + n % VL::kElements;
      sums[(warp * kGroup + head) * kSumStride<D> + column] = run.sums[m][i];
    }
  }
  warpgroup.sync();
  for (int i = thread; i < a.group * D; i += kThreads) {
    const int g = i / D, d = i % D;
    const auto [row_max, row_sum, sum] =
        combine_warps<kWarps>(stats + g, sums + g * kSumStride<D> + d, kGroup, kSumStride<D>);
    emit(g, d, sum, row_max, row_sum);
  }
  warpgroup.sync();
}

// Resident blocks per SM; a second wave would be mostly empty.
template <class K, int D>
constexpr int kBlocksPerSm = shared_bytes<K, D>() > (64 << 10) ? 2 : 3;

// The most splits of a key head: one wave of blocks.
template <class K, int D>
int splits_for(int sm_count, int64_t key_heads) {
  return int(std::clamp<int64_t>(kBlocksPerSm<K, D> * sm_count / key_heads, 1, kMaxSplits));
}

// With several splits: three blocks an SM, group * (D + 2) floats each.
static_assert(size_t(3) * 1024 * kGroup * 130 * sizeof(float) < Context::kScratchBytes);
static_assert(size_t(3) * 1024 / 2 <= Context::kOpCounters);

// For a call that attention_decode takes.
template <class T, class K, int D>
DecodeArgs<T, K> decode_args(const Context& c, const AttentionCall& call) {
  const int64_t blocks = call.tokens() * call.kv_heads(), group = call.group();
  const int splits = splits_for<K, D>(c.sm_count, blocks);
  float* sums = reinterpret_cast<float*>(c.scratch());
  return {heads<T>(call.out),
          lse_view(call.lse),
          heads<const T>(call.q),
          heads<const K>(call.kv.k),
          heads<const K>(call.kv.v),
          sequences_of(call.sequences),
          sums,
          reinterpret_cast<float2*>(sums + blocks * splits * group * D),
          c.counters(),
          int(call.kv_heads()),
          int(group),
          splits,
          kLog2E / std::sqrt(float(D))};
}

}  // namespace nibble::cuda::split_kv

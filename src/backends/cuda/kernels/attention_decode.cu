// SPDX-License-Identifier: MIT
// Attention for few queries a sequence and long caches. A block takes one token, one key head with
// all its query heads (so keys and values are read once) and a share of the keys; the block that is
// done last merges the shares in order. The number of shares comes from tensor shapes, their size
// from the lengths in device memory.
//
// The query heads are the rows of A, of which there are 16 and at most 8 are used: the tensor cores
// have time. Fragments come from global memory in pieces of 16 bytes: a product does not care in
// which order it takes the columns, so a lane's share of them is what lies together. They wait in
// shared memory, where each lane reads only what it has asked for itself.
#include <algorithm>
#include <cmath>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/reduce.cuh"
#include "backends/cuda/kernels/attention_mma.cuh"
#include "backends/cuda/kernels/attention_paths.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kKeys = 16;           // a warp takes at a time
constexpr int kStages = 3;          // of such keys on their way
constexpr int kGroup = 8;           // query heads a key head, at most
constexpr int kMaxSplits = 64;      // two a lane in the merge
constexpr int64_t kFewQueries = 8;  // a sequence, on average

template <class T, class K>
struct DecodeArgs {
  Heads<T> out;
  LogSums lse;
  Heads<const T> q;
  Heads<const K> k, v;
  Sequences sequences;
  float* sums;     // [tokens, Hkv, splits, group, D]
  float2* stats;   // [tokens, Hkv, splits, group]: largest score, sum of weights
  unsigned* done;  // [tokens, Hkv]: shares that have been written; zero before and after
  int group, splits;
  float scale;  // with log2 e
};

// Keys of one share; all but the last are full.
__device__ __forceinline__ int share_of(int visible, int splits) {
  constexpr int kStep = kKeys * kWarps;
  return ((visible + splits - 1) / splits + kStep - 1) / kStep * kStep;
}

template <int kBytes>
struct alignas(kBytes) Words {
  uint32_t w[kBytes / 4];
};

// How a row of D elements of K is dealt out to `kLanes` lanes: pieces of E elements.
template <class K, int D, int kLanes>
struct Deal {
  static constexpr int kFit = 16 / int(sizeof(K));
  static constexpr int kElements = kFit < D / kLanes ? kFit : D / kLanes;
  static constexpr int kPieces = D / (kLanes * kElements);
  static constexpr int kBytes = kElements * int(sizeof(K));
  using Piece = Words<kBytes>;
};

// B (and the rows of A in use) for all D columns, from this lane's share of one row.
template <class T, class K, int D>
__device__ __forceinline__ void column_fragments(uint32_t (&f)[D / 16][2],
                                                 const typename Deal<K, D, 4>::Piece* raw) {
  using L = Deal<K, D, 4>;
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

// One warp's running softmax over the rows of A in use: row lane / 4.
template <int D>
struct Running {
  float sums[D / 8][4] = {};
  float largest = -INFINITY, total = 0;
};

// What a warp holds of 16 keys and values: pieces of lane 0, of lane 1, ...
template <class K, int D>
struct Stage {
  using KL = Deal<K, D, 4>;
  using VL = Deal<K, D, 8>;
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
    copy_async(shared_address(to), from, wanted);
  } else {
    static_assert(kBytes == 8);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(wanted ? 8 : 0)
                 : "memory");
  }
}

// Asks for keys and values. Those that are not there become zero, and nothing is read.
template <class T, class K, int D>
__device__ __forceinline__ void request(std::byte* stage, const DecodeArgs<T, K>& a, int64_t slot,
                                        int kv_head, int count) {
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

template <class T, class K, int D>
__device__ __forceinline__ void attend(Running<D>& run, const uint32_t (&q)[D / 16][2],
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

// The shares of one head of a token, by one warp; they may come from other blocks.
template <class T, class K, int D>
__device__ __forceinline__ void merge(const DecodeArgs<T, K>& a, int64_t token, int kv_head,
                                      int64_t share0, int g, int parts) {
  constexpr int kColumns = D / 32;
  const int lane = int(threadIdx.x) % 32;
  const int64_t first = share0 * a.group + g;
  float2 mine[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int part = 32 * h + lane;
    mine[h] = make_float2(-INFINITY, 0);
    if (part < parts) mine[h] = __ldcg(a.stats + first + int64_t(part) * a.group);
  }
  const float largest = warp_reduce<Max>(fmaxf(mine[0].x, mine[1].x));
  float weight[2], sum[kColumns] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) weight[h] = exp2_fast(mine[h].x - largest);
  const float total = warp_reduce<Sum>(fmaf(mine[0].y, weight[0], mine[1].y * weight[1]));
  using Columns = std::conditional_t<kColumns == 4, float4, float2>;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll 8
    for (int part = 32 * h; part < min(parts, 32 * h + 32); ++part) {
      const float w = __shfl_sync(0xffffffffu, weight[h], part % 32);
      const Columns x = __ldcg(reinterpret_cast<const Columns*>(
          a.sums + (first + int64_t(part) * a.group) * D + lane * kColumns));
      sum[0] = fmaf(x.x, w, sum[0]), sum[1] = fmaf(x.y, w, sum[1]);
      if constexpr (kColumns == 4) sum[2] = fmaf(x.z, w, sum[2]), sum[3] = fmaf(x.w, w, sum[3]);
    }
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum[i] /= total;
  const int64_t head = int64_t(kv_head) * a.group + g;
  store_f32<kColumns>(a.out.at(token, head, D) + lane * kColumns, sum);
  if (lane == 0) a.lse.set(token, head, (largest + log2f(total)) * kLn2);
}

template <class K, int D>
constexpr size_t shared_bytes() {
  return std::max(size_t(kWarps) * kStages * Stage<K, D>::kBytes,
                  size_t(kWarps) * kGroup * (D * sizeof(float) + sizeof(float2)));
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
  Running<D> run;
  int stage = 0;
  for (int key = begin + kKeys * warp; key < end; key += kStep) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    attend<T, K, D>(run, q, stages + stage * S::kBytes, a.scale, min(kKeys, end - key));
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
  const int64_t share0 = (token * gridDim.y + kv_head) * a.splits;
  for (int i = int(threadIdx.x); i < a.group * D; i += kThreads) {
    const int g = i / D, d = i % D;
    float largest = stats[g].x, total = 0, sum = 0;
#pragma unroll
    for (int w = 1; w < kWarps; ++w) largest = fmaxf(largest, stats[w * kGroup + g].x);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 of_warp = stats[w * kGroup + g];
      const float weight = exp2_fast(of_warp.x - largest);
      total = fmaf(of_warp.y, weight, total);
      sum = fmaf(sums[(w * kGroup + g) * D + d], weight, sum);
    }
    if (parts > 1) {
      a.sums[((share0 + split) * a.group + g) * D + d] = sum;
      if (d == 0) a.stats[(share0 + split) * a.group + g] = make_float2(largest, total);
    } else {
      const int64_t head = int64_t(kv_head) * a.group + g;
      a.out.at(token, head, D)[d] = from_f32<T>(sum / total);
      if (d == 0) a.lse.set(token, head, (largest + log2f(total)) * kLn2);
    }
  }
  if (parts == 1) return;
  __threadfence();  // the share is written before it is counted
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned* const done = a.done + token * gridDim.y + kv_head;
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
void decode(const Context& c, const AttentionCall& call) {
  const int64_t tokens = call.tokens(), kv_heads = call.kv_heads(), group = call.group();
  // So many blocks fit on a multiprocessor; a second round of them would be mostly empty.
  constexpr int64_t kResident = shared_bytes<K, D>() > (64 << 10) ? 2 : 3;
  const int64_t blocks = tokens * kv_heads;
  const int splits = int(std::clamp<int64_t>(kResident * c.sm_count / blocks, 1, kMaxSplits));
  float* sums = reinterpret_cast<float*>(c.scratch());
  DecodeArgs<T, K> args{heads<T>(call.out),
                        log_sums(call.lse),
                        heads<const T>(call.q),
                        heads<const K>(call.kv.k),
                        heads<const K>(call.kv.v),
                        sequences_of(call.sequences),
                        sums,
                        reinterpret_cast<float2*>(sums + blocks * splits * group * D),
                        c.counters(),
                        int(group),
                        splits,
                        kLog2E / std::sqrt(float(D))};
  const auto kernel = decode_kernel<T, K, D>;
  constexpr size_t kShared = shared_bytes<K, D>();
  allow_shared(c, kernel);
  launch(c, {dim3(unsigned(splits), unsigned(kv_heads), unsigned(tokens)), dim3(kThreads), kShared},
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
  if (c.one_launch_a_token) return attention_teams(c, a);
  if (!tensor_core_types(a) || a.group() > kGroup ||
      a.tokens() > kFewQueries * a.sequences.dim(0) || a.tokens() > 65535 ||
      !heads_aligned(a.out, a.q, a.kv.k, a.kv.v)) {
    return false;
  }
  // Where there are several shares, three blocks a multiprocessor of group * (D + 2) floats.
  static_assert(size_t(3) * 1024 * kGroup * 130 * sizeof(float) < Context::kScratchBytes);
  static_assert(size_t(3) * 1024 / 2 <= Context::kCounters);
  with_attention_types(a, [&](auto t, auto k) { decode<decltype(t), decltype(k)>(c, a); });
  return true;
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// The residual stream of the token, replicated in the registers of every block, its RMSNorms, and
// the loads of activations that other blocks publish.
//
// Sums of squares have the order of norm.cu, whose blocks have up to 512 threads: row thread r sums
// the packs of eight r and r + 512, then a tree over 32 row threads, then over the 16 warps. Thread
// t of this kernel plays row thread t and, as it has fewer than 512 threads, t + kTokenThreads.
#pragma once
#include "backends/cuda/decode/sentinel_words.cuh"
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/decode/weight_ring.cuh"
#include "backends/cuda/device_functions/gemv_units.cuh"
#include "backends/cuda/device_functions/reduce.cuh"

namespace nibble::cuda {

constexpr int kRowThreads = 512;
constexpr int kRounds = (kRowThreads + kTokenThreads - 1) / kTokenThreads;

// kWide: widths over 8 kTokenThreads, up to kTokenMaxWidth; several packs of eight a thread.
template <bool kWide>
struct Residual {
  static constexpr int kPacks = kWide ? 2 * kRounds : 1;
  uint4 kept[kPacks];  // the residual, bf16
  float g[kPacks][8];  // the norm's weight
  int width;

  // First column of this thread's pack `pack` (round pack / 2 of row threads); `width` or more:
  // none.
  static __device__ __forceinline__ int at(int pack) {
    const int row_thread = int(threadIdx.x) + pack / 2 * kTokenThreads;
    return row_thread < kRowThreads ? 8 * (row_thread + pack % 2 * kRowThreads) : kTokenMaxWidth;
  }
  __device__ __forceinline__ Residual(const bf16* x, int width) : width(width) {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      kept[s] = make_uint4(0, 0, 0, 0);
      if (at(s) < width) kept[s] = __ldcg(reinterpret_cast<const uint4*>(x + at(s)));
    }
  }

  // Ends the live range of the norm weights, so that attention gets their registers.
  __device__ __forceinline__ void drop_weight() {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
#pragma unroll
      for (int k = 0; k < 8; ++k) g[s][k] = 0;
    }
  }
  // Prefetches the next norm's weights a phase ahead: loads issued behind them would wait for them.
  // A wide row has no registers for that.
  __device__ __forceinline__ void prefetch_weight(const AnyFloats& weight) {
    if constexpr (!kWide) load_weight(weight);
  }

  // x = RMSNorm(residual) into shared memory. Before that, where `sum` is not null, spins for those
  // words (the output of attn_out or down) and adds them to the residual, rounded to bf16 as the op
  // would store it. Once they are there, issues the deferred refill of the ring.
  __device__ __forceinline__ void normalise(bf16* token, const uint32_t* sum,
                                            const AnyFloats& weight, float eps, WeightRing& ring) {
    __shared__ alignas(16) float partial[kRowThreads / 32];
    float v[kPacks][8];
    if constexpr (kWide) load_weight(weight);
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (sum && at(s) < width) add(s, sum + at(s) / 2);
      unpack(kept[s], v[s]);
    }
#pragma unroll
    for (int round = 0; round < (kWide ? kRounds : 1); ++round) {
      float squares = 0;
#pragma unroll
      for (int s = 2 * round; s < kPacks && s < 2 * round + 2; ++s) {
#pragma unroll
        for (int k = 0; k < 8; ++k) squares = fmaf(v[s][k], v[s][k], squares);
      }
      squares = warp_reduce<Sum>(squares);
      const int row_warp = int(threadIdx.x) / 32 + round * kTokenWarps;
      if (threadIdx.x % 32 == 0 && row_warp < kRowThreads / 32) partial[row_warp] = squares;
    }
    if (!kWide && threadIdx.x < kRowThreads / 32 && int(threadIdx.x) >= kTokenWarps) {
      partial[threadIdx.x] = 0;
    }
    __syncthreads();
    ring.issue_deferred();
    const float scale = 1.0f / sqrtf(sum_of_16(partial) / float(width) + eps);
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) >= width) continue;
      float y[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        y[k] = to_f32(from_f32<bf16>(v[s][k] * scale * g[s][k])) * kTokenScale<bf16>;
      }
      *reinterpret_cast<uint4*>(token + at(s)) = pack(y);
    }
    __syncthreads();
  }

 private:
  __device__ __forceinline__ void load_weight(const AnyFloats& weight) {
    drop_weight();
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      if (at(s) < width) weight.load<8, true>(at(s), g[s]);
    }
  }
  __device__ __forceinline__ void add(int s, const uint32_t* words) {
    uint4 sum = try_load_chunk(words);
    spin_for_chunk(sum, words);
    float x[8], y[8];
    unpack(kept[s], x);
    unpack(sum, y);
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] += y[k];
    kept[s] = pack(x);
  }
  // The tree of warp_reduce for 16 values (lanes 16 .. 31 hold zeros).
  static __device__ __forceinline__ float sum_of_16(const float* p) {
    const float4* const v = reinterpret_cast<const float4*>(p);
    const float4 a = sum(v[0], v[2]), b = sum(v[1], v[3]), c = sum(a, b);
    return (c.x + c.z) + (c.y + c.w);
  }
  static __device__ __forceinline__ float4 sum(const float4& a, const float4& b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
  static __device__ __forceinline__ float low_of(uint32_t pair) {
    return __uint_as_float(pair << 16);
  }
  static __device__ __forceinline__ float high_of(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
  }
  static __device__ __forceinline__ void unpack(const uint4& p, float (&v)[8]) {
    v[0] = low_of(p.x), v[1] = high_of(p.x), v[2] = low_of(p.y), v[3] = high_of(p.y);
    v[4] = low_of(p.z), v[5] = high_of(p.z), v[6] = low_of(p.w), v[7] = high_of(p.w);
  }
  static __device__ __forceinline__ uint4 pack(const float (&v)[8]) {
    return make_uint4(pack_pair<bf16>(v[0], v[1]), pack_pair<bf16>(v[2], v[3]),
                      pack_pair<bf16>(v[4], v[5]), pack_pair<bf16>(v[6], v[7]));
  }
};

// Zeros behind the last column, to the end of its unit.
__device__ __forceinline__ void zero_ragged_columns(bf16* token, int columns, int thread) {
  constexpr int kCols = int(kUnitCols);
  const int at = columns + 8 * thread;
  if (at < (columns + kCols - 1) / kCols * kCols) {
    *reinterpret_cast<uint4*>(token + at) = make_uint4(0, 0, 0, 0);
  }
}

// Loads columns begin .. end (multiples of 128; kRagged: end of 8, followed by zeros) of
// activations that other blocks publish into shared memory. Threads are numbered from the last: the
// first ones attend.
template <bool kRagged>
struct ColumnLoader {
  bf16* token;
  int thread;
  uint4 early = {};

  __device__ __forceinline__ explicit ColumnLoader(bf16* token)
      : token(token), thread(kTokenThreads - 1 - int(threadIdx.x)) {}

  // First poll of the columns begin .. end, without waiting. words: those of column 0.
  __device__ __forceinline__ void prefetch(const uint32_t* words, int begin, int end) {
    early = make_uint4(kUnwritten, kUnwritten, kUnwritten, kUnwritten);
    if (begin + 8 * thread < end) early = try_load_chunk(words + begin / 2 + 4 * thread);
  }
  // Spins for all of them, after prefetch(). `origin`: the column at the begin of shared memory.
  // Ends with a barrier of the block.
  __device__ __forceinline__ void wait(const uint32_t* words, int origin, int begin, int end) {
    for (int column = begin + 8 * thread; column < end; column += 8 * kTokenThreads) {
      spin_for_chunk(early, words + column / 2);
      *reinterpret_cast<uint4*>(token + column - origin) = early;
      const int next = column + 8 * kTokenThreads;
      if (next < end) early = try_load_chunk(words + next / 2);
    }
    if constexpr (kRagged) zero_ragged_columns(token, end - origin, thread);
    __syncthreads();
  }
};

}  // namespace nibble::cuda

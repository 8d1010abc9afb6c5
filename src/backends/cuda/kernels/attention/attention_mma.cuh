// SPDX-License-Identifier: MIT
// Building blocks of attention with mma.sync m16n8k16: fragments, cp.async, swizzled tiles in
// shared memory, the combine of warps.
//
// Fragments, for lane = 4 r + c: A holds rows r, r + 8, columns 2c, 2c + 1 (+ 8); B column r, rows
// 2c, 2c + 1 (+ 8); D rows r, r + 8, columns 2c, 2c + 1. So the D of one product, packed to 16
// bits, is the A of the next.
#pragma once
#include "backends/cuda/device_functions/shared_memory.cuh"
#include "backends/cuda/kernels/attention/attention_common.cuh"
#include "backends/cuda/kernels/attention/attention_paths.h"

namespace nibble::cuda {

// The tensor-core kernels: 16-bit activations, keys and values of the same type or f8_e4m3, heads
// of 64 or 128.
inline bool tensor_core_types(const AttentionInputs& a) {
  const DType act = a.q.dtype, cache = a.kv.k.dtype;
  return (act == DType::bf16 || act == DType::f16) && (cache == act || cache == DType::f8_e4m3) &&
         (a.width() == 128 || a.width() == 64);
}
// f(a value of the activations' type, one of the cache's), for such a call.
template <class F>
void with_attention_types(const AttentionInputs& a, F&& f) {
  const auto with_act = [&](auto t) {
    if (a.kv.k.dtype == DType::f8_e4m3) {
      f(t, f8{});
    } else {
      f(t, t);
    }
  };
  if (a.q.dtype == DType::bf16) {
    with_act(bf16{});
  } else {
    with_act(f16{});
  }
}

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// d += a . b
template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Combines the online softmax of kWarps warps for one head and column, in order: stats (row
// maximum, row sum) and sums lie `heads` entries apart, sums of `stride` elements.
struct CombinedWarps {
  float row_max, row_sum, sum;
};
template <int kWarps>
__device__ __forceinline__ CombinedWarps combine_warps(const float2* stats, const float* sums,
                                                       int heads, int stride) {
  CombinedWarps all{stats[0].x, 0, 0};
#pragma unroll
  for (int w = 1; w < kWarps; ++w) all.row_max = fmaxf(all.row_max, stats[w * heads].x);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float2 of_warp = stats[w * heads];
    const float weight = exp2_fast(of_warp.x - all.row_max);
    all.row_sum = fmaf(of_warp.y, weight, all.row_sum);
    all.sum = fmaf(sums[w * heads * stride], weight, all.sum);
  }
  return all;
}

// Reduction over the lanes of equal c, which hold different keys.
template <class Op>
__device__ __forceinline__ float across_keys(float v) {
#pragma unroll
  for (int o = 4; o < 32; o <<= 1) v = Op()(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

// cp.async of 16 bytes, or zeros.
__device__ __forceinline__ void cp_async16(uint32_t to, const void* from, bool wanted) {
  const int bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async4(uint32_t to, const float* from, bool wanted) {
  const int bytes = wanted ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_wait_all() {
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

// A tile [rows][D] of 16-bit elements in shared memory, aligned to 256 bytes, XOR-swizzled: 16-byte
// chunks of a row are permuted by the row's number, so that the eight rows of an ldmatrix lie in
// different banks. Rows and steps given to the loads are constants, rows multiples of 16: an
// address is then one XOR away from the lane's first.
template <int D>
struct SharedTile {
  static constexpr int kChunks = D / 8;
  static constexpr uint32_t kRowBytes = D * 2;
  uint32_t base;
  __device__ __forceinline__ uint32_t at(int row, int chunk) const {
    return base + uint32_t((row * kChunks + (chunk ^ (row & 7))) * 16);
  }
  __device__ __forceinline__ SharedTile from_row(int row) const {
    return {base + uint32_t(row) * kRowBytes};
  }
  // A of rows row .. row + 15, columns 16 step .. + 15.
  __device__ __forceinline__ void load_a(uint32_t (&r)[4], int row, int step) const {
    const int lane = int(threadIdx.x) % 32;
    ldmatrix(r, (at(lane % 16, lane / 16) ^ uint32_t(32 * step)) + uint32_t(row) * kRowBytes);
  }
  // B for products over the columns 16 step .. + 15: {r0, r1} for the rows row .. + 7 as columns
  // of B, {r2, r3} for row + 8 .. + 15.
  __device__ __forceinline__ void load_b(uint32_t (&r)[4], int row, int step) const {
    const int lane = int(threadIdx.x) % 32;
    ldmatrix(r, (at(lane / 16 * 8 + lane % 8, lane / 8 % 2) ^ uint32_t(32 * step)) +
                    uint32_t(row) * kRowBytes);
  }
  // B for products over the rows row .. row + 15: {r0, r1} for the columns 8 chunk .. + 7,
  // {r2, r3} for the next eight; chunk is even.
  __device__ __forceinline__ void load_b_rows(uint32_t (&r)[4], int row, int chunk) const {
    const int lane = int(threadIdx.x) % 32;
    ldmatrix_transposed(r, (at(lane / 8 % 2 * 8 + lane % 8, lane / 16) ^ uint32_t(16 * chunk)) +
                               uint32_t(row) * kRowBytes);
  }
};

// Two e4m3 values, the first in the low byte, as a pair of T; exact.
template <class T>
__device__ __forceinline__ uint32_t widen_pair(uint32_t two) {
  const __half2_raw h = __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(two & 0xffffu), __NV_E4M3);
  if constexpr (std::is_same_v<T, f16>) {
    return *reinterpret_cast<const uint32_t*>(&h);
  } else {
    const float2 f = __half22float2(__half2(h));
    return pack_pair<bf16>(f.x, f.y);
  }
}

// Starts cp.async of kRows rows of a tile; rows from `limit` on become zero and are not read. An
// f8_e4m3 cache is widened by the threads, synchronously.
template <class T, class K, int D, int kThreads, int kRows>
__device__ __forceinline__ void fetch_tile(const SharedTile<D>& tile, const K* from, int64_t stride,
                                           int limit) {
  constexpr int kPieces = D * int(sizeof(K)) / 16;  // of a row
  constexpr int kTogether = kThreads / kPieces;     // rows
  static_assert(kTogether % 8 == 0 && kRows % kTogether == 0);
  const int row = int(threadIdx.x) / kPieces, piece = int(threadIdx.x) % kPieces;
  const K* p = from + row * stride + piece * (16 / int(sizeof(K)));
#pragma unroll
  for (int i = 0; i < kRows / kTogether; ++i) {
    const bool wanted = row + i * kTogether < limit;
    const SharedTile<D> to = tile.from_row(i * kTogether);
    if constexpr (std::is_same_v<T, K>) {
      cp_async16(to.at(row, piece), wanted ? p : from, wanted);
    } else {
      uint4 raw = {0, 0, 0, 0};
      if (wanted) raw = *reinterpret_cast<const uint4*>(p);
      const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t w[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          w[j] = widen_pair<T>(words[2 * half + j / 2] >> (16 * (j % 2)));
        }
        store_chunk(to.at(row, 2 * piece + half), w[0], w[1], w[2], w[3]);
      }
    }
    p += kTogether * stride;
  }
}

// Epilogue of one warp: 16 rows of sums as T by way of `tile` (from `row` on) to global memory, in
// 16-byte chunks; only the first `limit` rows exist there. The warp must be done reading its rows
// of the tile.
template <class T, int D>
__device__ __forceinline__ void store_rows(const SharedTile<D>& tile, int row,
                                           const float (&sums)[D / 8][4], float low, float high,
                                           T* to, int64_t stride, int limit) {
  const int lane = int(threadIdx.x) % 32, r = lane / 4, c = lane % 4;
  __syncwarp();  // the tile's rows hold operands that other lanes have read
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    store_word(tile.at(row + r, n) + 4 * c, pack_pair<T>(sums[n][0] * low, sums[n][1] * low));
    store_word(tile.at(row + r + 8, n) + 4 * c, pack_pair<T>(sums[n][2] * high, sums[n][3] * high));
  }
  __syncwarp();
  constexpr int kChunks = D / 8;
#pragma unroll
  for (int i = lane; i < 16 * kChunks; i += 32) {
    const int at = i / kChunks, chunk = i % kChunks;
    if (at < limit) {
      *reinterpret_cast<uint4*>(to + at * stride + chunk * 8) =
          load_chunk(tile.at(row + at, chunk));
    }
  }
}

}  // namespace nibble::cuda

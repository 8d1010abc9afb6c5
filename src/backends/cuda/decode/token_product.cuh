// SPDX-License-Identifier: MIT
// A block's part of a product with the token that lies in its shared memory. The tasks of a block
// are the parts of its strips (device/token_units.cuh), which its warps take in turn.
#pragma once
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device/token_units.cuh"

namespace nibble::cuda {

constexpr int kTokenWarps = kTokenThreads / 32;

// A multiple of 16 bytes; before compute capability 9.0 nothing happens.
__device__ __forceinline__ void fetch_to_l2(const void* p, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
}

// Four bytes to shared memory, without waiting for them.
__device__ __forceinline__ void copy_word_async(float* to, const float* from) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(uint32_t(__cvta_generic_to_shared(to))),
      "l"(from)
      : "memory");
}
__device__ __forceinline__ void wait_for_word_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// This block's strips of a product: neighbours, so that their weights and rows lie together.
template <bool kSwiglu>
struct Product {
  TokenWeight w;
  int units, parts, strips;  // strips: with swiglu of one half
  int first, count;          // this block's

  __device__ __forceinline__ Product(const TokenWeight& w, int in, int out) : w(w) {
    units = in / int(kUnitCols), parts = parts_of(units);
    strips = (kSwiglu ? out / 2 : out) / int(kUnitRows);
    first = int(int64_t(strips) * blockIdx.x / gridDim.x);
    count = int(int64_t(strips) * (blockIdx.x + 1) / gridDim.x) - first;
  }
  __device__ __forceinline__ UnitRange task(int i) const {
    UnitRange r;
    if (i >= (kSwiglu ? 2 : 1) * count * parts) return r;
    int strip = i / parts;
    const int part = i - strip * parts;
    strip += strip < count ? first : first - count + strips;
    r.first = part_begin(units, parts, part);
    r.count = part_begin(units, parts, part + 1) - r.first;
    r.p = w.packed + (int64_t(strip) * units + r.first) * kUnitBytes;
    return r;
  }
  // Asks for all of the block's weights to come to the L2 cache; by one warp.
  __device__ __forceinline__ void fetch_ahead() const {
    constexpr int64_t kPiece = 16 << 10;
    const int64_t bytes = int64_t(count) * units * kUnitBytes, half = int64_t(strips) * units;
    const uint8_t* p = w.packed + int64_t(first) * units * kUnitBytes;
    for (int h = 0; h < (kSwiglu ? 2 : 1); ++h, p += half * kUnitBytes) {
      for (int64_t at = kPiece * (threadIdx.x % 32); at < bytes; at += 32 * kPiece) {
        fetch_to_l2(p + at, unsigned(min(kPiece, bytes - at)));
      }
    }
  }
};

// A warp's way through the weights.
struct Stream {
  Unit units[kUnitsInFlight] = {};
  UnitRange part;  // what `units` hold or wait for
};

// This block's part of a product with the token in shared memory; write(row, value [, up value]).
// The last loads are those of `next`, the warp's first part of the next product.
template <bool kSwiglu, class Write>
__device__ __forceinline__ void multiply_strips(const Product<kSwiglu>& p, Stream& s,
                                                UnitRange next, const TokenLane& x, float* sums,
                                                Write&& write) {
  const int t = int(threadIdx.x), lane = t % 32;
  const int row0 = p.first * int(kUnitRows), rows = p.count * int(kUnitRows);
  // Row scales go to shared memory, behind the sums: a load into registers would be waited for
  // together with the weights that are asked for after it.
  float* const scales = sums + (kSwiglu ? 2 : 1) * rows * p.parts;
  if (p.w.row_scale) {
    for (int i = t; i < (kSwiglu ? 2 : 1) * rows; i += kTokenThreads) {
      const int row = i < rows ? row0 + i : row0 + i - rows + p.strips * int(kUnitRows);
      copy_word_async(scales + i, p.w.row_scale + row);
    }
  }
  if (s.part.count == 0) request(s.units, next, lane);
  for (int task = t / 32; s.part.count > 0; task += kTokenWarps) {
    const UnitRange following = p.task(task + kTokenWarps);
    const bool last = following.count == 0;
    const UnitRange after{last ? next.p : following.p, 0, last ? next.count : following.count};
    sum_part<bf16>(s.units, s.part, after, x, lane, sums + task * int(kUnitRows));
    s.part = following;
  }
  s.part = next;
  wait_for_word_copies();
  __syncthreads();
  const float* const up_sums = sums + p.count * p.parts * int(kUnitRows);
  for (int i = t; i < rows; i += kTokenThreads) {
    const int at = i / int(kUnitRows) * p.parts * int(kUnitRows), row = i % int(kUnitRows);
    float v = add_parts<bf16>(sums + at, p.parts, row);
    if (p.w.row_scale) v *= scales[i];
    if constexpr (kSwiglu) {
      float up = add_parts<bf16>(up_sums + at, p.parts, row);
      if (p.w.row_scale) up *= scales[rows + i];
      write(row0 + i, v, up);
    } else {
      write(row0 + i, v);
    }
  }
}

}  // namespace nibble::cuda

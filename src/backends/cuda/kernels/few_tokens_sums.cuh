// SPDX-License-Identifier: MIT
// How the blocks of a cluster add up the sums of their slices of K (gemv_wgmma.cu).
//
// The sums of a tile of 64 rows are dealt out over the cluster by pairs: two strips of 16 rows (w
// and w + 2 of the tile's four, so that with swiglu gate and up come together) and eight tokens.
// Each block sends the others their pairs as soon as it has them; nobody waits for anybody but for
// the bytes that are still to come, and a tile is finished only after the next one is computed.
#pragma once
#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/dequantize.cuh"
#include "backends/cuda/device/wgmma_tiles.cuh"
#include "backends/cuda/kernels/few_tokens.cuh"

namespace nibble::cuda {

constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kTileStrips = 4;
constexpr int kPairBytes = 2 * int(kUnitRows) * 8 * 4;

// Pairs of a tile, how many of them (a power of two) a block finishes, and what it keeps of a tile.
constexpr int pairs_of(int tokens) { return tokens / 4; }
constexpr int pair_shift_for(int tokens, int slices) {
  int shift = 0;
  while (slices << (shift + 1) <= pairs_of(tokens)) ++shift;
  return shift;
}
constexpr int slot_bytes(int tokens, int slices) {
  return slices * (kPairBytes << pair_shift_for(tokens, slices));
}

// `total` things in `parts` parts, the first ones one larger; without divisions on the device.
struct Shares {
  int base = 0, rest = 0;
  Shares() = default;
  Shares(int total, int parts) : base(total / parts), rest(total % parts) {}
  __device__ __forceinline__ int begin(int part) const { return part * base + min(part, rest); }
};

struct SlicedTokens : FewTokens {
  int slices_shift = 0, groups = 0;
  Shares units_of_slice, strips_of_cluster;
  int chunk = 0;       // units a copy brings, at most; a slice of a strip has whole copies
  int ring = 0;        // copies a warp has on their way
  int slots = 0;       // tiles a group may have sent and not yet finished: 1 or 2
  int slot_bytes = 0;  // what a block keeps of a tile
  int owners = 0;      // blocks of a cluster that finish something,
  int pair_shift = 0;  // namely 1 << pair_shift pairs each
  int ring_at = 0, slots_at = 0, barriers_at = 0;  // in shared memory
  bool packs = false;                              // four outputs may be written at once
};

#if defined(NIBBLE_HAS_WGMMA)

__device__ __forceinline__ void copy_units(uint32_t to, const uint8_t* from, uint32_t bytes,
                                           uint32_t barrier) {
  arrive_expecting(barrier, bytes);
  bulk_load(to, from, bytes, barrier);
}
// Two sums to a block of the cluster; they count as eight bytes at its barrier.
__device__ __forceinline__ void send_pair(uint32_t to, float a, float b, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(to),
      "f"(a), "f"(b), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void arrive_in_block(uint32_t barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                   address_in_block(barrier, rank))
               : "memory");
}
__device__ __forceinline__ void wait_in_cluster(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      " @!done bra again;}" ::"r"(barrier),
      "r"(phase & 1)
      : "memory");
}
// By whole warps, so that the compiler sees them together behind it.
__device__ __forceinline__ void wait_for_copy(uint32_t barrier, int phase) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      " @!done bra.uni again;}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
__device__ __forceinline__ void store_pair(uint32_t to, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
__device__ __forceinline__ float load_shared(uint32_t from) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
  return v;
}

// Where the sums of a row of a strip lie, eight tokens each: four rows in turn, and those four
// apart, are in different banks.
__device__ __forceinline__ int sums_place(int row) { return (row ^ (row / 4 % 4)) * 32; }

template <class O>
__device__ __forceinline__ void store4(O* to, const float (&v)[4], int count, bool packs) {
  if (packs && count >= 4) {
    store_f32<4>(to, v);
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k < count) to[k] = from_f32<O>(v[k]);
    }
  }
}

// Four rows of a token, added over the slices and scaled. The rows' places: see sums_place.
template <class T>
__device__ __forceinline__ void add_slices(uint32_t at, uint32_t step, int slices,
                                           const float (&scale)[4], float (&v)[4]) {
  uint32_t from[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) from[k] = at ^ uint32_t(32 * k), v[k] = 0;
#pragma unroll 2
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] += load_shared(from[k]), from[k] += step;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = v[k] * kDown<T> * scale[k];
}
__device__ __forceinline__ void load_row_scales(const SlicedTokens& j, int row, float (&scale)[4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) scale[k] = 1;
  if (!j.row_scale) return;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (row + k < j.rows) scale[k] = __ldg(j.row_scale + row + k);
  }
}

// What the threads of one group do with the sums of its tiles.
template <class T, int kTokens, bool kSwiglu>
struct Sums {
  const SlicedTokens& j;
  int slice, group, thread;  // the group's
  uint32_t slots, full, freed;

  __device__ __forceinline__ int slot_of(int n) const { return n & (j.slots - 1); }
  __device__ __forceinline__ int phase_of(int n) const { return n >> (j.slots - 1); }
  __device__ __forceinline__ uint32_t slot(int n) const {
    return slots + uint32_t(slot_of(n) * j.slot_bytes);
  }
  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
  }
  // One thread's: the next tile of that slot will come.
  __device__ __forceinline__ void expect(int n) const {
    arrive_expecting(full + uint32_t(8 * slot_of(n)), uint32_t(j.slot_bytes));
  }

  // The sums of tile n of the group.
  __device__ __forceinline__ void send(int n, const float (&acc)[kTokens / 2]) const {
    const int lane = thread % 32, warp = thread / 32, g = lane / 4, q = lane % 4;
    const uint32_t low = uint32_t(sums_place(g)), high = uint32_t(sums_place(g + 8));
    const uint32_t to = slot(n) + uint32_t((slice << j.pair_shift) * kPairBytes +
                                           warp / 2 * (kPairBytes / 2) + 8 * q);
    if (j.slices_shift == 0) {
#pragma unroll
      for (int k = 0; k < kTokens / 8; ++k) {
        const uint32_t at = to + uint32_t((2 * k + warp % 2) * kPairBytes);
        store_pair(at + low, acc[4 * k], acc[4 * k + 1]);
        store_pair(at + high, acc[4 * k + 2], acc[4 * k + 3]);
      }
      return;
    }
    const uint32_t barrier = full + uint32_t(8 * slot_of(n));
    if (n >= j.slots) wait_in_cluster(freed + uint32_t(8 * slot_of(n)), phase_of(n) - 1);
#pragma unroll
    for (int k = 0; k < kTokens / 8; ++k) {
      const int pair = 2 * k + warp % 2, owner = pair >> j.pair_shift;
      const int local = pair & ((1 << j.pair_shift) - 1);
      const uint32_t there = address_in_block(to + uint32_t(local * kPairBytes), owner);
      const uint32_t there_full = address_in_block(barrier, owner);
      send_pair(there + low, acc[4 * k], acc[4 * k + 1], there_full);
      send_pair(there + high, acc[4 * k + 2], acc[4 * k + 3], there_full);
    }
  }

  // Adds up this block's part of tile n, whose first strip is `strip`, and writes it. again: its
  // slot will be used again.
  __device__ __forceinline__ void finish(int n, int strip, int strip_end, bool again) const {
    if (slice >= j.owners) return;
    constexpr int kThreadsOfPair = kSwiglu ? 32 : 64, kTogether = kGroupThreads / kThreadsOfPair;
    const int t8 = thread % 8, four = thread / 8 % 4, half = kSwiglu ? 0 : thread / 32 % 2;
    const int pair = (slice << j.pair_shift) + thread / kThreadsOfPair;
    strip += pair % 2 + 2 * half;
    const int row = strip * int(kUnitRows) + 4 * four, width = j.rows / 2;
    float scale[4], up_scale[4];
    load_row_scales(j, row, scale);
    if constexpr (kSwiglu) load_row_scales(j, row + width, up_scale);
    if (j.slices_shift == 0) {
      sync();
    } else {
      wait_in_cluster(full + uint32_t(8 * slot_of(n)), phase_of(n));
    }
    if (strip < strip_end && row < j.rows) {
      uint32_t at = slot(n) + uint32_t(thread / kThreadsOfPair * kPairBytes +
                                       half * (kPairBytes / 2) + four * (128 + 32) + t8 * 4);
      const uint32_t step = uint32_t(kPairBytes) << j.pair_shift;
      int token = pair / 2 * 8 + t8;
      for (int left = (1 << j.pair_shift) - thread / kThreadsOfPair; left > 0; left -= kTogether) {
        if (token < j.n) write(at, step, token, row, width, scale, up_scale);
        at += kTogether * kPairBytes, token += kTogether / 2 * 8;
      }
    }
    if (!again) return;
    sync();  // everybody has read the slot, then the slices may write
    if (j.slices_shift == 0) return;
    if (thread == 0) expect(n);
    if (thread < 1 << j.slices_shift) {
      arrive_in_block(freed + uint32_t(8 * slot_of(n)), uint32_t(thread));
    }
  }

  __device__ __forceinline__ void write(uint32_t at, uint32_t step, int token, int row, int width,
                                        const float (&scale)[4], const float (&up_scale)[4]) const {
    float v[4];
    add_slices<T>(at, step, 1 << j.slices_shift, scale, v);
    const int64_t to = token * j.out_stride + row;
    if constexpr (kSwiglu) {
      float up[4], act[4];
      add_slices<T>(at + kPairBytes / 2, step, 1 << j.slices_shift, up_scale, up);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float g = to_f32(from_f32<T>(v[k]));
        act[k] = g * sigmoid(g) * to_f32(from_f32<T>(up[k]));
      }
      T* out = static_cast<T*>(j.out) + to;
      store4(out, v, 4, j.packs);
      store4(out + width, up, 4, j.packs);
      store4(static_cast<T*>(j.swiglu) + token * j.swiglu_stride + row, act, 4, j.packs);
    } else if (j.out_type == DType::f32) {
      store4(static_cast<float*>(j.out) + to, v, j.rows - row, j.packs);
    } else {
      store4(static_cast<T*>(j.out) + to, v, j.rows - row, j.packs);
    }
  }
};

#endif

}  // namespace nibble::cuda

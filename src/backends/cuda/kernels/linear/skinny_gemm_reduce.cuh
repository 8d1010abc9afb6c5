// SPDX-License-Identifier: MIT
// How the blocks of a cluster add up the sums of their slices of K (skinny_gemm_wgmma.cu).
//
// The sums of a tile of 64 rows are dealt out over the cluster by tokens, eight at a time. What a
// thread has of them it sends to the thread with its number in the block that owns the tokens,
// which has its own sums of the same rows and tokens: nothing changes its place but on the way to
// memory. Nobody waits for anybody but for the bytes that are still to come, and a tile is finished
// only after the next one is computed.
#pragma once
#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/dequantize.cuh"
#include "backends/cuda/device/wgmma_tiles.cuh"
#include "backends/cuda/kernels/linear/skinny_gemm_args.cuh"

namespace nibble::cuda {

constexpr int kWarpgroupThreads = 128;  // of a warpgroup
constexpr int kTileStrips = 4;
constexpr int kN8TileBytes = kWarpgroupThreads * 16;  // of eight tokens: four sums a thread

// Eights of tokens, how many blocks finish some, and how many (a power of two) each of them does.
constexpr int n8_tiles_of(int tokens) { return tokens / 8; }
constexpr int owners_of(int tokens, int slices) {
  return slices < n8_tiles_of(tokens) ? slices : n8_tiles_of(tokens);
}
constexpr int n8_tiles_of_owner(int tokens, int slices) {
  return n8_tiles_of(tokens) / owners_of(tokens, slices);
}
// What a block keeps of a tile: from every slice.
constexpr int slot_bytes(int tokens, int slices) {
  return slices * n8_tiles_of_owner(tokens, slices) * kN8TileBytes;
}

// `total` things in `parts` parts, the first ones one larger; without divisions on the device.
struct EvenSplit {
  int base = 0, rest = 0;
  EvenSplit() = default;
  EvenSplit(int total, int parts) : base(total / parts), rest(total % parts) {}
  __device__ __forceinline__ int begin(int part) const { return part * base + min(part, rest); }
};

struct ClusterGemmArgs : SkinnyGemmArgs {
  int slices_shift = 0, groups = 0;
  EvenSplit units_of_slice, strips_of_cluster;
  int stage_units = 0;  // units a copy brings, at most; a slice of a strip has whole copies
  int stages = 0;       // copies a warp has on their way
  int slots = 0;        // tiles a group may have sent and not yet finished: 1 or 2
  int slot_bytes = 0;   // what a block keeps of a tile
  int owners = 0;       // blocks of a cluster that finish something,
  int n8_shift = 0;     // namely 1 << n8_shift eights of tokens each
  int ring_at = 0, slots_at = 0, barriers_at = 0;  // in shared memory
  bool whole_units = false;                        // units of x are whole, and aligned
  bool paired_stores = false;                      // two outputs may be written at once
};

#if defined(NIBBLE_HAS_WGMMA)

__device__ __forceinline__ void copy_units(uint32_t to, const uint8_t* from, uint32_t bytes,
                                           uint32_t barrier) {
  mbarrier_arrive_expect_tx(barrier, bytes);
  bulk_load(to, from, bytes, barrier);
}
// One lane of a whole warp. What it then does with values that are the same in all lanes the
// compiler need not do lane by lane.
__device__ __forceinline__ bool elect_one() {
  uint32_t one;
  asm volatile("{.reg .pred e; elect.sync _|e, 0xffffffff; selp.u32 %0, 1, 0, e;}" : "=r"(one));
  return one;
}
// Four sums to a block of the cluster, where they count as sixteen bytes at its barrier; to the own
// one without it. (A branch around them would keep the compiler from leaving products behind.)
__device__ __forceinline__ void send_dsmem(uint32_t to, const float* v, uint32_t barrier, int block,
                                           int own) {
  asm volatile(
      "{.reg .pred here; .reg .b32 there, counted;\n"
      " setp.eq.s32 here, %6, %7;\n"
      " mapa.shared::cluster.u32 there, %0, %6;\n"
      " mapa.shared::cluster.u32 counted, %5, %6;\n"
      " @here st.shared.v4.f32 [%0], {%1, %2, %3, %4};\n"
      " @!here st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], "
      "{%1, %2, %3, %4}, [counted];}" ::"r"(to),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier), "r"(block), "r"(own)
      : "memory");
}
// Relaxed, as a release to the cluster would be a fence of the device: what was read has been read,
// because results were computed from it and written before the threads met.
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                   dsmem_address(barrier, rank))
               : "memory");
}
__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      " @!done bra again;}" ::"r"(barrier),
      "r"(phase & 1)
      : "memory");
}
// By whole warps, so that the compiler sees them together behind it.
__device__ __forceinline__ void mbarrier_wait_by_warp(uint32_t barrier, int phase) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      " @!done bra.uni again;}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

// What the threads of one group do with the sums of its tiles. A thread has rows g and g + 8 of its
// warp's strip and of every eight tokens 2 q and 2 q + 1: sums 0, 1 and 2, 3.
template <class T, int kTokens, bool kSwiglu>
struct ClusterReduction {
  const ClusterGemmArgs& j;
  int slice, group, thread;  // the group's
  uint32_t slots, full, empty;

  __device__ __forceinline__ int slot_of(int n) const { return n & (j.slots - 1); }
  __device__ __forceinline__ int phase_of(int n) const { return n >> (j.slots - 1); }
  // What this thread finds of a tile.
  __device__ __forceinline__ uint32_t slot(int n) const {
    return slots + uint32_t(slot_of(n) * j.slot_bytes + thread * 16);
  }
  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kWarpgroupThreads) : "memory");
  }
  // One thread's: the next tile of that slot will come, but for this block's own sums.
  __device__ __forceinline__ void expect_partials(int n) const {
    const int own = kN8TileBytes << j.n8_shift;
    mbarrier_arrive_expect_tx(full + uint32_t(8 * slot_of(n)), uint32_t(j.slot_bytes - own));
  }

  // The sums of tile n of the group.
  __device__ __forceinline__ void send_partials(int n, const float (&acc)[kTokens / 2]) const {
    const uint32_t to = slot(n) + uint32_t((slice << j.n8_shift) * kN8TileBytes);
    const uint32_t barrier = full + uint32_t(8 * slot_of(n));
    if (j.slices_shift > 0 && n >= j.slots) {
      mbarrier_wait_cluster(empty + uint32_t(8 * slot_of(n)), phase_of(n) - 1);
    }
#pragma unroll
    for (int k = 0; k < kTokens / 8; ++k) {
      const int owner = k >> j.n8_shift, local = k & ((1 << j.n8_shift) - 1);
      send_dsmem(to + uint32_t(local * kN8TileBytes), acc + 4 * k, barrier, owner, slice);
    }
  }

  // Adds up this block's part of tile n, where this warp's strip (with swiglu of the gate's, for
  // both halves) is `strip`, and writes it. again: its slot will be used again.
  __device__ __forceinline__ void reduce_and_write(int n, int strip, int strip_end,
                                                   bool again) const {
    if (slice >= j.owners) return;
    const int lane = thread % 32, g = lane / 4, up = kSwiglu ? thread / 64 : 0;
    const int row = strip * int(kUnitRows) + up * (j.rows / 2);
    float scale[2] = {1, 1};
    if (j.row_scale && strip < strip_end) {
      if (row + g < j.rows) scale[0] = __ldg(j.row_scale + row + g);
      if (row + g + 8 < j.rows) scale[1] = __ldg(j.row_scale + row + g + 8);
    }
    if (j.slices_shift > 0) mbarrier_wait_cluster(full + uint32_t(8 * slot_of(n)), phase_of(n));
    const int first = slice << j.n8_shift;
    uint32_t at = slot(n);
#pragma unroll 1
    for (int k = 0; k < 1 << j.n8_shift; ++k, at += kN8TileBytes) {
      float v[4];
      add_slices(at, v);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = v[i] * kPostScale<T> * scale[i / 2];
      const int token = 8 * (first + k);
      if constexpr (kSwiglu) {
        write_swiglu(at, v, token, row, strip < strip_end);
      } else if (strip < strip_end) {
        write(v, token, row);
      }
    }
    if (!again) return;
    sync();  // everybody has read the slot, then the slices may write
    if (j.slices_shift == 0) return;
    if (thread == 0) expect_partials(n);
    if (thread < 1 << j.slices_shift) {
      mbarrier_arrive_remote(empty + uint32_t(8 * slot_of(n)), uint32_t(thread));
    }
  }

 private:
  // In order.
  __device__ __forceinline__ void add_slices(uint32_t at, float (&v)[4]) const {
    const uint32_t step = uint32_t(kN8TileBytes) << j.n8_shift;
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = 0;
#pragma unroll 2
    for (int s = 0; s < 1 << j.slices_shift; ++s, at += step) {
      const uint4 part = load_chunk(at);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] += __uint_as_float(word_of(part, i));
    }
  }

  __device__ __forceinline__ void write(const float (&v)[4], int token, int row) const {
    if (j.out_type == DType::f32) {
      const int lane = thread % 32, q = lane % 4;
      float* const out = static_cast<float*>(j.out) + row + lane / 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int of = token + 2 * q + i % 2, down = 8 * (i / 2);
        if (of < j.n && row + lane / 4 + down < j.rows) out[of * j.out_stride + down] = v[i];
      }
    } else {
      write_pairs(static_cast<T*>(j.out), j.out_stride, token, row, j.rows,
                  pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]));
    }
  }
  // Rows row .. and row + 8 .. of eight tokens, as pairs of tokens; as pairs of rows they lie
  // together in memory.
  __device__ __forceinline__ void write_pairs(T* out, int64_t stride, int token, int row, int rows,
                                              uint32_t low, uint32_t high) const {
    const int lane = thread % 32;
    const uint32_t pairs[2] = {movmatrix_transpose(low), movmatrix_transpose(high)};
    token += lane / 4, row += lane % 4 * 2;
    if (token >= j.n) return;
    T* const to = out + token * stride + row;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (j.paired_stores && row + 8 * i + 1 < rows) {
        *reinterpret_cast<uint32_t*>(to + 8 * i) = pairs[i];
      } else {
        const T* const pair = reinterpret_cast<const T*>(&pairs[i]);
        if (row + 8 * i < rows) to[8 * i] = pair[0];
        if (row + 8 * i + 1 < rows) to[8 * i + 1] = pair[1];
      }
    }
  }
  // The warps of the up half hand their rounded values to those of the gate's; by the whole group.
  __device__ __forceinline__ void write_swiglu(uint32_t at, const float (&v)[4], int token, int row,
                                               bool there) const {
    const uint32_t low = pack_pair<T>(v[0], v[1]), high = pack_pair<T>(v[2], v[3]);
    if (thread >= 64) store_chunk(at, low, high, 0, 0);
    sync();
    if (!there) return;
    write_pairs(static_cast<T*>(j.out), j.out_stride, token, row, j.rows, low, high);
    if (thread >= 64) return;
    const uint4 up = load_chunk(at + 64 * 16);
    write_pairs(static_cast<T*>(j.swiglu), j.swiglu_stride, token, row, j.rows / 2,
                swiglu_pair(low, up.x), swiglu_pair(high, up.y));
  }
  static __device__ __forceinline__ uint32_t swiglu_pair(uint32_t gate, uint32_t up) {
    const T *const g = reinterpret_cast<const T*>(&gate), *const u =
                                                              reinterpret_cast<const T*>(&up);
    float act[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float x = to_f32(g[i]);
      act[i] = x * sigmoid(x) * to_f32(u[i]);
    }
    return pack_pair<T>(act[0], act[1]);
  }
};

#endif

}  // namespace nibble::cuda

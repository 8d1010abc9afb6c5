// SPDX-License-Identifier: MIT
// Split-K reduction over a cluster through DSMEM, for skinny_gemm_wgmma.cu.
//
// The partials of a tile (64 rows) are divided over the cluster by tokens, one n8 tile at a time. A
// thread sends its four partials of an n8 tile to the thread of the same number in the owner block
// (st.async, counted in bytes by the owner's mbarrier), which holds the same rows and tokens: no
// shuffle is needed before the final store. full / empty mbarriers per slot; no other
// synchronisation. A tile is reduced only after the next one has been computed, so that the
// exchange is hidden.
#pragma once
#include "backends/cuda/device_functions/cluster.cuh"
#include "backends/cuda/device_functions/dequantize.cuh"
#include "backends/cuda/device_functions/wgmma_tiles.cuh"
#include "backends/cuda/kernels/linear/skinny_gemm_args.cuh"

namespace nibble::cuda {

constexpr int kWarpgroupThreads = 128;
constexpr int kTileStrips = 4;  // a tile: 64 rows of a warpgroup
constexpr int kN8TileBytes =
    kWarpgroupThreads * 16;  // partials of 64 rows x 8 tokens: four a thread

// n8 tiles of tokens, how many blocks (owners) reduce some, and how many (a power of two) each of
// them does.
constexpr int n8_tiles_of(int tokens) { return tokens / 8; }
constexpr int owners_of(int tokens, int slices) {
  return slices < n8_tiles_of(tokens) ? slices : n8_tiles_of(tokens);
}
constexpr int n8_tiles_of_owner(int tokens, int slices) {
  return n8_tiles_of(tokens) / owners_of(tokens, slices);
}
// Receive buffer of a tile: the owner's n8 tiles from every slice.
constexpr int slot_bytes(int tokens, int slices) {
  return slices * n8_tiles_of_owner(tokens, slices) * kN8TileBytes;
}

// `total` items in `parts` parts, the first ones one larger; no division on the device.
struct EvenSplit {
  int base = 0, rest = 0;
  EvenSplit() = default;
  EvenSplit(int total, int parts) : base(total / parts), rest(total % parts) {}
  __device__ __forceinline__ int begin(int part) const { return part * base + min(part, rest); }
};

struct ClusterGemmArgs : SkinnyGemmArgs {
  int slices_shift = 0, groups = 0;
  EvenSplit units_of_slice, strips_of_cluster;
  int stage_units = 0;  // units of a stage, at most; a slice of a strip begins with a new stage
  int stages = 0;       // pipeline depth of a warp's weights
  int slots = 0;        // tiles in exchange at once: 1, or 2 (double-buffered)
  int slot_bytes = 0;   // receive buffer of a tile
  int owners = 0;       // blocks of a cluster that reduce something,
  int n8_shift = 0;     // namely 1 << n8_shift n8 tiles of tokens each
  int ring_at = 0, slots_at = 0, barriers_at = 0;  // in shared memory
  bool whole_units = false;                        // x has whole units and is aligned
  bool paired_stores = false;  // two neighbouring outputs may be stored as one word
};

#if defined(NIBBLE_HAS_WGMMA)

__device__ __forceinline__ void copy_units(uint32_t to, const uint8_t* from, uint32_t bytes,
                                           uint32_t barrier) {
  mbarrier_arrive_expect_tx(barrier, bytes);
  bulk_load(to, from, bytes, barrier);
}
// elect.sync: the compiler then knows that uniform values need no per-lane code.
__device__ __forceinline__ bool elect_one() {
  uint32_t one;
  asm volatile("{.reg .pred e; elect.sync _|e, 0xffffffff; selp.u32 %0, 1, 0, e;}" : "=r"(one));
  return one;
}
// Sends four partials to block `block` of the cluster, counted as 16 bytes by its barrier; to the
// own block as a plain store. (Predicated: a branch would make the compiler wait for wgmmas in
// flight.)
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
// Relaxed, since a release at cluster scope would be a device-wide fence. Safe: the reads are
// complete, as results computed from them were stored before the threads' barrier.
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
// Converged wait of a whole warp (bra.uni).
__device__ __forceinline__ void mbarrier_wait_by_warp(uint32_t barrier, int phase) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      " @!done bra.uni again;}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

// The exchange of one warpgroup. A thread has rows g and g + 8 of its warp's strip and of every n8
// tile tokens 2 q and 2 q + 1: sums 0, 1 and 2, 3.
template <class T, int kTokens, bool kSwiglu>
struct ClusterReduction {
  const ClusterGemmArgs& j;
  int slice, group, thread;  // cluster rank; warpgroup; thread of it
  uint32_t slots, full, empty;

  __device__ __forceinline__ int slot_of(int n) const { return n & (j.slots - 1); }
  __device__ __forceinline__ int phase_of(int n) const { return n >> (j.slots - 1); }
  // This thread's part of the receive buffer of tile n.
  __device__ __forceinline__ uint32_t slot(int n) const {
    return slots + uint32_t(slot_of(n) * j.slot_bytes + thread * 16);
  }
  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kWarpgroupThreads) : "memory");
  }
  // By one thread: arms the full barrier for the bytes of all other slices.
  __device__ __forceinline__ void expect_partials(int n) const {
    const int own = kN8TileBytes << j.n8_shift;
    mbarrier_arrive_expect_tx(full + uint32_t(8 * slot_of(n)), uint32_t(j.slot_bytes - own));
  }

  // Sends the partials of tile n, once its slot is empty.
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

  // Reduces this block's n8 tiles of tile n in the order of the slices and stores them. `strip`:
  // this warp's (with SwiGLU the gate's, for both halves). again: the slot will be reused.
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
    sync();  // all threads have read the slot: it is empty
    if (j.slices_shift == 0) return;
    if (thread == 0) expect_partials(n);
    if (thread < 1 << j.slices_shift) {
      mbarrier_arrive_remote(empty + uint32_t(8 * slot_of(n)), uint32_t(thread));
    }
  }

 private:
  // Partials of all slices, in order.
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
  // Rows row .. and row + 8 .. of eight tokens as pairs of tokens, transposed (movmatrix) to pairs
  // of rows, which are contiguous in memory.
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
  // The warps of the up half hand their rounded values to those of the gate through shared memory;
  // by the whole warpgroup.
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

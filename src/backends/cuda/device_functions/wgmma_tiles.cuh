// SPDX-License-Identifier: MIT
// Shared memory tiles for wgmma with the 128-byte swizzle, the wgmma forms used on them, register
// reallocation, and mbarriers as objects.
//
// WgmmaTile<rows, width>: [rows][width] 16-bit elements, width 64 or 128, as one or two halves of
// 64 columns, each [rows][128 bytes] with 16-byte chunks XOR-permuted by the row. The same bytes
// serve as a K-major operand (queries, keys: sums over a row's elements) and as an MN-major one
// (values: sums over rows). Rows are multiples of 8; the tile is aligned to 1024 bytes.
#pragma once
#include "backends/cuda/device_functions/bulk_copy.cuh"
#include "backends/cuda/device_functions/wgmma.cuh"

namespace nibble::cuda {

template <int kRows, int kWidth>
struct WgmmaTile {
  static_assert(kWidth == 64 || kWidth == 128);
  static constexpr int kHalves = kWidth / 64;
  static constexpr uint32_t kHalfBytes = uint32_t(kRows) * 128, kBytes = kHalves * kHalfBytes;
  uint32_t base;  // in shared memory

  // Address of 16-byte chunk `chunk` (of width / 8) of a row.
  __device__ __forceinline__ uint32_t at(int row, int chunk) const {
    return base + uint32_t(chunk / 8) * kHalfBytes +
           uint32_t(row * 128 + ((chunk % 8) ^ (row & 7)) * 16);
  }
  // Descriptor of A or B, K-major: rows from `row` on (a multiple of 8), columns 16 step ...
  __device__ __forceinline__ uint64_t desc_k_major(int row, int step) const {
    return make_descriptor(
        base + uint32_t(step / 4) * kHalfBytes + uint32_t(row) * 128 + uint32_t(step % 4) * 32, 16);
  }
  // Descriptor of B, MN-major: rows 16 step .. + 15 (along K), all columns.
  __device__ __forceinline__ uint64_t desc_mn_major(int step) const {
    return make_descriptor(base + uint32_t(step) * 16 * 128, kHalfBytes);
  }
  // The same by adding to the descriptor of step 0: the address field does not overflow.
  static __device__ __forceinline__ uint64_t advance_k_major(uint64_t of_step_0, int step) {
    return of_step_0 + (uint32_t(step / 4) * kHalfBytes + uint32_t(step % 4) * 32) / 16;
  }
  static __device__ __forceinline__ uint64_t advance_mn_major(uint64_t of_step_0, int step) {
    return of_step_0 + uint32_t(step) * 16 * 128 / 16;
  }

 private:
  // leading: byte offset between the halves for MN-major operands; ignored where there is one, and
  // for K-major swizzled operands.
  static __device__ __forceinline__ uint64_t make_descriptor(uint32_t address, uint32_t leading) {
    return uint64_t((address & 0x3ffffu) >> 4) | uint64_t(leading >> 4) << 16 |
           uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
  }
};

#if defined(NIBBLE_HAS_WGMMA)

#define NIBBLE_A4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define NIBBLE_A16(d, i) \
  NIBBLE_A4(d, i), NIBBLE_A4(d, i + 4), NIBBLE_A4(d, i + 8), NIBBLE_A4(d, i + 12)
#define NIBBLE_A64(d) NIBBLE_A16(d, 0), NIBBLE_A16(d, 16), NIBBLE_A16(d, 32), NIBBLE_A16(d, 48)
#define NIBBLE_R64                                                                           \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"  \
  "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
  "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"

// SS form, 64 x 64, both K-major: d = a b, or += where `add`.
__device__ __forceinline__ void wgmma_64x64_ss(float (&d)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0;"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
      "%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;}"
      : NIBBLE_A16(d, 0), NIBBLE_A16(d, 16)
      : "l"(a), "l"(b), "r"(add));
}
// RS form, 64 x 64: d += a b, b MN-major.
__device__ __forceinline__ void wgmma_rs_mn(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.eq.b32 p, 0, 0;"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
      "%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;}"
      : NIBBLE_A16(d, 0), NIBBLE_A16(d, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// RS form, 64 x 128: a in registers, b K-major.
__device__ __forceinline__ void wgmma_64x128_rs(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                                int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NIBBLE_R64
      ", {%64,%65,%66,%67}, %68, p, 1, 1, 0;}"
      : NIBBLE_A64(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
// RS form, 64 x 128: d += a b, b MN-major.
__device__ __forceinline__ void wgmma_rs_mn(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.eq.b32 p, 0, 0;"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NIBBLE_R64
      ", {%64,%65,%66,%67}, %68, p, 1, 1, 1;}"
      : NIBBLE_A64(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef NIBBLE_A4
#undef NIBBLE_A16
#undef NIBBLE_A64
#undef NIBBLE_R64

// CUTLASS's warpgroup_fence_operand: the compiler does not know that a wgmma wait changes these
// registers, so nothing computed from them may move across this point.
template <int kCount>
__device__ __forceinline__ void warpgroup_fence_operand(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_dealloc() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_alloc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

#endif

// An mbarrier completed by `count` arrivals. Waiters count phases from 0; the parity follows.
struct Mbarrier {
  uint32_t address;
  __device__ __forceinline__ void init(unsigned count) const { mbarrier_init(address, count); }
  __device__ __forceinline__ void arrive() const { mbarrier_arrive(address); }
  // Until phase `phase` (0, 1, ...) is complete.
  __device__ __forceinline__ void wait(unsigned phase) const {
    mbarrier_wait_parity(address, phase & 1);
  }
};

}  // namespace nibble::cuda

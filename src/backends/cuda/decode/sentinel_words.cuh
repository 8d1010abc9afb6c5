// SPDX-License-Identifier: MIT
// Values that one block hands to others inside a kernel: 32-bit words of two bf16, which were all
// ones before. That is a NaN no conversion or product makes (theirs is 0x7fff), so it means that
// nothing has come yet: one store publishes, one load waits and reads, without a fence, a counter
// or a tag, and a chunk of 16 bytes is eight elements. Every layer has its own words; they are
// filled when the kernel begins.
#pragma once
#include "backends/cuda/decode/flagged_words.cuh"

namespace nibble::cuda {

constexpr uint32_t kNothing = 0xffffffffu;

__device__ __forceinline__ void put_pair(uint32_t* to, uint32_t pair) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(pair) : "memory");
}

// Loads that may come too early.
__device__ __forceinline__ uint4 ask_chunk(const uint32_t* from) {
  uint4 c;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.x), "=r"(c.y), "=r"(c.z), "=r"(c.w)
               : "l"(from)
               : "memory");
  return c;
}
__device__ __forceinline__ uint2 ask_pairs(const uint32_t* from) {
  uint2 c;
  asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];"
               : "=r"(c.x), "=r"(c.y)
               : "l"(from)
               : "memory");
  return c;
}
__device__ __forceinline__ bool has_come(const uint2& c) {
  return c.x != kNothing && c.y != kNothing;
}
__device__ __forceinline__ bool has_come(const uint4& c) {
  return has_come(make_uint2(c.x, c.y)) && has_come(make_uint2(c.z, c.w));
}

// A chunk that was asked for before, when all of it is there.
__device__ __forceinline__ void await_chunk(uint4& c, const uint32_t* from) {
  for (Patience patience; !has_come(c); patience.use()) c = ask_chunk(from);
}
// N times two words; all are asked for together, again until all are there.
template <int N, class At>
__device__ __forceinline__ void await_pairs(uint2 (&c)[N], At&& at) {
  bool all;
  Patience patience;
  do {
    patience.use();
#pragma unroll
    for (int i = 0; i < N; ++i) c[i] = ask_pairs(at(i));
    all = true;
#pragma unroll
    for (int i = 0; i < N; ++i) all = all && has_come(c[i]);
  } while (!all);
}

}  // namespace nibble::cuda

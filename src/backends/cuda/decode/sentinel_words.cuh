// SPDX-License-Identifier: MIT
// Values that one block hands to others inside a kernel: 32-bit words of two bf16, which were all
// ones before. That is a NaN no conversion or product makes (theirs is 0x7fff), so it means that
// nothing has come yet: one store publishes, one load waits and reads, without a fence, a counter
// or a tag, and a chunk of 16 bytes is eight elements. Every layer has its own words; they are
// filled when the kernel begins.
#pragma once
#include "backends/cuda/decode/flagged_words.cuh"

namespace nibble::cuda {

constexpr uint32_t kUnwritten = 0xffffffffu;

__device__ __forceinline__ void publish_pair(uint32_t* to, uint32_t pair) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(pair) : "memory");
}

// Loads that may come too early.
__device__ __forceinline__ uint4 try_load_chunk(const uint32_t* from) {
  uint4 c;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.x), "=r"(c.y), "=r"(c.z), "=r"(c.w)
               : "l"(from)
               : "memory");
  return c;
}
__device__ __forceinline__ uint2 try_load_pairs(const uint32_t* from) {
  uint2 c;
  asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];"
               : "=r"(c.x), "=r"(c.y)
               : "l"(from)
               : "memory");
  return c;
}
__device__ __forceinline__ bool is_written(const uint2& c) {
  return c.x != kUnwritten && c.y != kUnwritten;
}
__device__ __forceinline__ bool is_written(const uint4& c) {
  return is_written(make_uint2(c.x, c.y)) && is_written(make_uint2(c.z, c.w));
}

// A chunk that was asked for before, when all of it is there.
__device__ __forceinline__ void spin_for_chunk(uint4& c, const uint32_t* from) {
  for (SpinWatchdog watchdog; !is_written(c); watchdog.tick()) c = try_load_chunk(from);
}
// N times two words; all are asked for together, again until all are there.
template <int N, class At>
__device__ __forceinline__ void spin_for_pairs(uint2 (&c)[N], At&& at) {
  bool all;
  SpinWatchdog watchdog;
  do {
    watchdog.tick();
#pragma unroll
    for (int i = 0; i < N; ++i) c[i] = try_load_pairs(at(i));
    all = true;
#pragma unroll
    for (int i = 0; i < N; ++i) all = all && is_written(c[i]);
  } while (!all);
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Grid-wide exchange inside one kernel by sentinel-valued words: a 32-bit word holds two bf16, and
// a word that is not yet written holds 0xffffffff, a NaN pattern that no conversion or product
// yields (theirs is 0x7fff). So one relaxed store publishes, and the load that reads the value is
// also the poll: no fence, no counter, no flag, and a 16-byte load brings eight elements. (NCCL's
// LL protocol without its flags.)
//
// Producers: the blocks that reduce a product's rows (token_gemv.cuh) and attention's output
// (token_attention.cuh). Consumers: all blocks that need them. Every layer has words of its own,
// which the kernel sets to the sentinel before its only grid barrier (token_prologue.cuh).
#pragma once
#include "backends/cuda/decode/flagged_words.cuh"

namespace nibble::cuda {

constexpr uint32_t kUnwritten = 0xffffffffu;

__device__ __forceinline__ void publish_pair(uint32_t* to, uint32_t pair) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(pair) : "memory");
}

// Polls: the result may still hold the sentinel (is_written).
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

// Spins until a chunk that was polled once already is completely written.
__device__ __forceinline__ void spin_for_chunk(uint4& c, const uint32_t* from) {
  for (SpinWatchdog watchdog; !is_written(c); watchdog.tick()) c = try_load_chunk(from);
}
// Spins for one word of two elements.
__device__ __forceinline__ uint32_t spin_for_pair(const uint32_t* from) {
  uint32_t w;
  SpinWatchdog watchdog;
  do {
    watchdog.tick();
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(w) : "l"(from) : "memory");
  } while (w == kUnwritten);
  return w;
}
// Spins for N pairs of words; each round polls all of them together, so that their latencies
// overlap.
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

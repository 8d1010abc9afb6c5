// SPDX-License-Identifier: MIT
// wgmma.m64nNk16 (compute capability 9.0) in the RS form: A in registers, 16 rows for each of the
// four warps of a warpgroup in the order of mma.cuh; B in shared memory without swizzle, as core
// matrices of 8 columns by 16 bytes along K (128 bytes each), K-major; fp32 accumulation. acc[4 c +
// i] is what mma.cuh calls d_i for columns 8 c .. 8 c + 7. Also its fences and waits.
#pragma once
#include <cstdint>

#include "backends/cuda/device_functions/types.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NIBBLE_HAS_WGMMA 1
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#error \
    "compute capability 9.0 needs 90a: plain 90 has no warpgroup products, and the host would \
launch kernels without a body"
#endif

namespace nibble::cuda {

#if defined(NIBBLE_HAS_WGMMA)

// The matrix descriptor of B. along_k: leading byte offset, between the two core matrices along K;
// the next 8 columns follow at once (stride 128).
__device__ __forceinline__ uint64_t smem_descriptor(uint32_t address, uint32_t along_k) {
  return uint64_t((address & 0x3ffffu) >> 4) | uint64_t(along_k >> 4) << 16 |
         uint64_t(128 >> 4) << 32;
}
// wgmma.fence: before the first product and after registers of its operands were written otherwise.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending committed groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Generic-proxy writes to shared memory become visible to the async proxy (wgmma, TMA), after the
// next barrier.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// acc = a b, or += where `add`.
#define NIBBLE_WGMMA_BODY(type, n, registers, a, b, add)                                         \
  "{.reg .pred p; setp.ne.b32 p, " add                                                           \
  ", 0;"                                                                                         \
  "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" registers "}, {" a "}, " b \
  ", p, 1, 1, 0;}"

#define NIBBLE_ACC4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define NIBBLE_ACC16(i) NIBBLE_ACC4(i), NIBBLE_ACC4(i + 4), NIBBLE_ACC4(i + 8), NIBBLE_ACC4(i + 12)
#define NIBBLE_INPUTS "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add)

#define NIBBLE_WGMMA_OF(type)                                                                     \
  if constexpr (kColumns == 8) {                                                                  \
    asm volatile(NIBBLE_WGMMA_BODY(type, "8", "%0,%1,%2,%3", "%4,%5,%6,%7", "%8", "%9")           \
                 : NIBBLE_ACC4(0)                                                                 \
                 : NIBBLE_INPUTS);                                                                \
  } else if constexpr (kColumns == 16) {                                                          \
    asm volatile(                                                                                 \
        NIBBLE_WGMMA_BODY(type, "16", "%0,%1,%2,%3,%4,%5,%6,%7", "%8,%9,%10,%11", "%12", "%13")   \
        : NIBBLE_ACC4(0), NIBBLE_ACC4(4)                                                          \
        : NIBBLE_INPUTS);                                                                         \
  } else if constexpr (kColumns == 32) {                                                          \
    asm volatile(NIBBLE_WGMMA_BODY(type, "32",                                                    \
                                   "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15",       \
                                   "%16,%17,%18,%19", "%20", "%21")                               \
                 : NIBBLE_ACC16(0)                                                                \
                 : NIBBLE_INPUTS);                                                                \
  } else if constexpr (kColumns == 64) {                                                          \
    asm volatile(NIBBLE_WGMMA_BODY(type, "64",                                                    \
                                   "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"       \
                                   "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
                                   "%31",                                                         \
                                   "%32,%33,%34,%35", "%36", "%37")                               \
                 : NIBBLE_ACC16(0), NIBBLE_ACC16(16)                                              \
                 : NIBBLE_INPUTS);                                                                \
  } else if constexpr (kColumns == 96) {                                                          \
    asm volatile(NIBBLE_WGMMA_BODY(type, "96",                                                    \
                                   "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"       \
                                   "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
                                   "%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
                                   "%46,%47",                                                     \
                                   "%48,%49,%50,%51", "%52", "%53")                               \
                 : NIBBLE_ACC16(0), NIBBLE_ACC16(16), NIBBLE_ACC16(32)                            \
                 : NIBBLE_INPUTS);                                                                \
  } else {                                                                                        \
    static_assert(kColumns == 128);                                                               \
    asm volatile(NIBBLE_WGMMA_BODY(type, "128",                                                   \
                                   "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"       \
                                   "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
                                   "%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
                                   "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60," \
                                   "%61,%62,%63",                                                 \
                                   "%64,%65,%66,%67", "%68", "%69")                               \
                 : NIBBLE_ACC16(0), NIBBLE_ACC16(16), NIBBLE_ACC16(32), NIBBLE_ACC16(48)          \
                 : NIBBLE_INPUTS);                                                                \
  }

template <class T, int kColumns>
__device__ __forceinline__ void wgmma(float (&d)[kColumns / 2], uint32_t a0, uint32_t a1,
                                      uint32_t a2, uint32_t a3, uint64_t b, int add) {
  if constexpr (std::is_same_v<T, f16>) {
    NIBBLE_WGMMA_OF("f16")
  } else {
    NIBBLE_WGMMA_OF("bf16")
  }
}

#undef NIBBLE_WGMMA_BODY
#undef NIBBLE_WGMMA_OF
#undef NIBBLE_ACC4
#undef NIBBLE_ACC16
#undef NIBBLE_INPUTS

#endif

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Grid-wide exchange inside one kernel by flagged words, as in NCCL's LL protocol: a 64-bit word is
// 32 bits of data and a 32-bit flag, the number of the layer that wrote it (counted from 1). One
// relaxed store publishes, one load polls and reads; no fence and no counter between them. All
// words are overwritten before the kernel's grid barrier, so that no flag of an earlier launch is
// left. Used where the same words serve every layer (partials of split-KV attention, which are
// floats, so no sentinel is free).
#pragma once
#include <cstdint>

namespace nibble::cuda {

__device__ __forceinline__ void publish_word(uint64_t* to, uint32_t bits, uint32_t flag) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(uint64_t(flag) << 32 | bits)
               : "memory");
}
__device__ __forceinline__ void publish_words(uint64_t* to, uint32_t first, uint32_t second,
                                              uint32_t flag) {
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to),
               "l"(uint64_t(flag) << 32 | first), "l"(uint64_t(flag) << 32 | second)
               : "memory");
}

// A poll of two neighbouring words; valid once both have the flag.
struct FlaggedWords {
  uint64_t first, second;
  __device__ __forceinline__ bool has_flag(uint32_t flag) const {
    return uint32_t(first >> 32) == flag && uint32_t(second >> 32) == flag;
  }
  __device__ __forceinline__ uint2 data() const {
    return make_uint2(uint32_t(first), uint32_t(second));
  }
};
__device__ __forceinline__ FlaggedWords try_load_words(const uint64_t* from) {
  FlaggedWords w;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(w.first), "=l"(w.second)
               : "l"(from)
               : "memory");
  return w;
}
__device__ __forceinline__ uint64_t try_load_word(const uint64_t* from) {
  uint64_t w;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(w) : "l"(from) : "memory");
  return w;
}

// A spin that would never end traps after some seconds of polls, so that a fault is an error, not a
// hang.
class SpinWatchdog {
 public:
  __device__ __forceinline__ void tick() {
    if (++polls_ == 0x400000) __trap();
  }

 private:
  unsigned polls_ = 0;
};

}  // namespace nibble::cuda

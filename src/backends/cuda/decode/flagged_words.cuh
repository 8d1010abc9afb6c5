// SPDX-License-Identifier: MIT
// Values that one block hands to others inside a kernel: a 64-bit word is 32 bits of data and a
// tag, the number of the layer that made it. One store publishes, one load waits and reads: no
// fence and no counter stands between them. FlaggedWords are overwritten when the kernel begins, so
// that nothing else has left a tag there.
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

// A load that may come too early.
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

// What never comes would be a hang: after some seconds of loads it becomes an error.
class SpinWatchdog {
 public:
  __device__ __forceinline__ void tick() {
    if (++polls_ == 0x400000) __trap();
  }

 private:
  unsigned polls_ = 0;
};

}  // namespace nibble::cuda

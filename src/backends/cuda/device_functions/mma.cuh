// SPDX-License-Identifier: MIT
// mma.m16n8k16 with fp32 accumulation. Lane (g, q) = (lane / 4, lane % 4) holds of A rows g (a0,
// a2) and g + 8 (a1, a3), of B column g; their pairs along K are 2 q (a0, a1, b0) and 2 q + 8 (a2,
// a3, b1); of D rows g (d0, d1) and g + 8 (d2, d3), columns 2 q and 2 q + 1.
#pragma once
#include <cstdint>

#include "backends/cuda/device_functions/types.cuh"

namespace nibble::cuda {

template <class T>
__device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                    uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, f16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Private to nvfp4.cpp: the block loop of every scale rule, compiled once per instruction set.
// All of them give the same bytes; only std::fma's speed differs.
#pragma once
#include <cstdint>

#include "quant/nvfp4.h"

namespace nibble::nvfp4_kernels {

struct Run {
  const float* x;  // [blocks, 16]
  int64_t blocks;
  float global_scale;
  uint8_t* codes;   // [blocks, 8]
  uint8_t* scales;  // [blocks]
};

void quantize_portable(const Run& run, ScaleRule rule);
#if defined(__x86_64__)
void quantize_avx2(const Run& run, ScaleRule rule);  // needs AVX2 and FMA
#endif

}  // namespace nibble::nvfp4_kernels

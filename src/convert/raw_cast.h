// SPDX-License-Identifier: MIT
// Floats into the element type of a raw tensor, counting what does not survive exactly.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace nibble {

// Whether such elements are numbers that can become those of another type.
constexpr bool castable(DType t) {
  return t == DType::f64 || t == DType::f32 || t == DType::f16 || t == DType::bf16;
}

struct CastLoss {
  int64_t inexact = 0;   // values that were rounded
  int64_t overflow = 0;  // finite values that became infinite
};

// n floats -> n elements of f32, bf16 or f16. Throws InternalError for other types.
CastLoss cast_from_f32(const float* x, int64_t n, DType to, void* out);

}  // namespace nibble

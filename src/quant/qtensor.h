// SPDX-License-Identifier: MIT
// A packed NVFP4 matrix: two byte tensors and a number, as plain fields.
#pragma once
#include "core/tensor.h"

namespace nibble {

struct QTensor {
  Tensor codes;   // u8 [rows, cols/2], element 2j in the low nibble
  Tensor scales;  // u8 [rows, cols/16], E4M3 bytes, not swizzled
  float global_scale = 1;

  explicit operator bool() const { return bool(codes); }
  int64_t rows() const { return codes.dim(0); }
  int64_t cols() const { return codes.cols() * 2; }
  // Rows [begin, begin + count); the scale of a block belongs to one row, so this is lossless.
  QTensor slice(int64_t begin, int64_t count) const {
    return {codes.slice(begin, count), scales.slice(begin, count), global_scale};
  }
};

}  // namespace nibble

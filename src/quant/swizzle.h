// SPDX-License-Identifier: MIT
// The scale layout block-scaled tensor cores read: rows padded to 128 and columns to 4 with
// zeros, tiles of 128x4 bytes in row-major tile order, byte (r, c) of a tile at
// (r % 32) * 16 + (r / 32) * 4 + c.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/codec.h"

namespace nibble {

// rows x cols counts scale bytes: cols is the matrix width divided by 16.
constexpr size_t swizzled_scale_bytes(int64_t rows, int64_t cols) {
  return size_t((rows + 127) / 128 * ((cols + 3) / 4) * 512);
}
NIBBLE_HOST_DEVICE constexpr size_t swizzled_scale_index(int64_t row, int64_t col, int64_t cols) {
  const int64_t tile = row / 128 * ((cols + 3) / 4) + col / 4, r = row % 128;
  return size_t(tile * 512 + r % 32 * 16 + r / 32 * 4 + col % 4);
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "quant/swizzle.h"

#include <algorithm>

#include "core/error.h"

namespace nibble {
namespace {

constexpr int64_t kTileRows = 128, kTileCols = 4, kTileBytes = kTileRows * kTileCols;

int64_t tiles(int64_t n, int64_t per_tile) { return (n + per_tile - 1) / per_tile; }

}  // namespace

size_t swizzled_scale_bytes(int64_t rows, int64_t cols) {
  if (rows < 0 || cols < 0) throw_internal("scale matrix of {} x {}", rows, cols);
  return size_t(tiles(rows, kTileRows) * tiles(cols, kTileCols) * kTileBytes);
}

void swizzle_scales(const uint8_t* scales, int64_t rows, int64_t cols, uint8_t* out) {
  std::fill_n(out, swizzled_scale_bytes(rows, cols), uint8_t(0));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) out[swizzled_scale_index(r, c, cols)] = scales[r * cols + c];
  }
}

void unswizzle_scales(const uint8_t* swizzled, int64_t rows, int64_t cols, uint8_t* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      out[r * cols + c] = swizzled[swizzled_scale_index(r, c, cols)];
    }
  }
}

}  // namespace nibble

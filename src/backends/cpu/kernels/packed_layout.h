// SPDX-License-Identifier: MIT
// NVFP4 weights as the CPU kernels read them: tiles of 16 rows by 64 columns, strip by strip
// (16 rows, all columns), rows and columns padded with zero scales.
//
// A tile is 512 bytes of codes, then 64 scale bytes: nine cache lines. Codes: block b (16 columns)
// at 128 b, its two halves h at 64 h, byte 4 r + j holds row r's elements 8 h + j (low nibble) and
// 8 h + 4 + j. So 64 bytes split into two vectors of "16 rows by 4 consecutive columns", which is
// what 8-bit dot product instructions take. Scales: block b, row r at 512 + 16 b + r, never
// negative (the signs are in the codes).
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/thread_pool.h"

namespace nibble::cpu {

constexpr int64_t kTileRows = 16, kTileCols = 64;
constexpr int64_t kTileCodeBytes = 512, kTileBytes = 576;

constexpr int64_t tiles_across(int64_t in) { return (in + kTileCols - 1) / kTileCols; }
constexpr int64_t strips_of(int64_t out) { return (out + kTileRows - 1) / kTileRows; }
constexpr size_t packed_size(int64_t out, int64_t in) {
  return size_t(strips_of(out) * tiles_across(in) * kTileBytes);
}

// Where block `block` (16 columns) of a row lies, in bytes. Its codes are eight nibbles here and
// eight kHalfBytes further.
struct BlockPlace {
  int64_t codes, scale;
};
constexpr int64_t kHalfBytes = 64;
constexpr BlockPlace block_place(int64_t in, int64_t row, int64_t block) {
  const int64_t tile = row / kTileRows * tiles_across(in) + block / 4;
  const int64_t r = row % kTileRows, b = block % 4;
  return {tile * kTileBytes + 128 * b + 4 * r, tile * kTileBytes + kTileCodeBytes + 16 * b + r};
}
// One block from and to its canonical 8 code bytes; the scale is neither negative nor NaN.
void pack_block(uint8_t* packed, BlockPlace at, const uint8_t* codes, uint8_t scale);
uint8_t unpack_block(const uint8_t* packed, BlockPlace at, uint8_t* codes);  // returns the scale

// Canonical rows (quant/nvfp4.h) into rows [row_begin, row_begin + rows) of a packed matrix of
// width `in`. Throws FormatError on a NaN scale.
void pack_nvfp4(ThreadPool& pool, uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows,
                const uint8_t* codes, const uint8_t* scales);
// The same without threads.
void pack_nvfp4(uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows, const uint8_t* codes,
                const uint8_t* scales);
void unpack_nvfp4(const uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows,
                  uint8_t* codes, uint8_t* scales);

}  // namespace nibble::cpu

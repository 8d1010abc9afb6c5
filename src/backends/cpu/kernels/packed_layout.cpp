// SPDX-License-Identifier: MIT
#include "backends/cpu/kernels/packed_layout.h"

#include <cstring>

#include "core/error.h"
#include "quant/codec.h"

namespace nibble::cpu {
namespace {

// Eight nibbles n0..n7 to n0 n4 n1 n5 n2 n6 n3 n7, and back.
uint32_t spread(uint32_t x) {
  x = (x | x << 8) & 0x00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0fu;
}
uint32_t gather(uint32_t x) {
  x &= 0x0f0f0f0fu;
  x = (x | x >> 4) & 0x00ff00ffu;
  return (x | x >> 8) & 0x0000ffffu;
}
uint32_t interleave(uint32_t v) { return spread(v & 0xffffu) | spread(v >> 16) << 4; }
uint32_t deinterleave(uint32_t v) { return gather(v) | gather(v >> 4) << 16; }

void check_scales(int64_t in, int64_t row_begin, int64_t rows, const uint8_t* scales) {
  const int64_t blocks = in / 16;
  for (int64_t i = 0; i < rows * blocks; ++i) {
    if ((scales[i] & 0x7f) == kE4m3NanCode) {
      throw_format("NVFP4 weight: the scale of row {}, columns {}.. is NaN (byte {:#04x})",
                   row_begin + i / blocks, i % blocks * 16, scales[i]);
    }
  }
}

void pack_checked(uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows,
                  const uint8_t* codes, const uint8_t* scales) {
  const int64_t blocks = in / 16;
  for (int64_t i = 0; i < rows * blocks; ++i) {
    const BlockPlace at = block_place(in, row_begin + i / blocks, i % blocks);
    uint64_t block;
    std::memcpy(&block, codes + i * 8, 8);
    if (scales[i] & 0x80) block ^= 0x8888888888888888u;
    uint8_t bytes[8];
    std::memcpy(bytes, &block, 8);
    pack_block(packed, at, bytes, scales[i] & 0x7f);
  }
}

}  // namespace

void pack_block(uint8_t* packed, BlockPlace at, const uint8_t* codes, uint8_t scale) {
  for (int64_t h = 0; h < 2; ++h) {
    uint32_t v;
    std::memcpy(&v, codes + 4 * h, 4);
    v = interleave(v);
    std::memcpy(packed + at.codes + kHalfBytes * h, &v, 4);
  }
  packed[at.scale] = scale;
}

uint8_t unpack_block(const uint8_t* packed, BlockPlace at, uint8_t* codes) {
  for (int64_t h = 0; h < 2; ++h) {
    uint32_t v;
    std::memcpy(&v, packed + at.codes + kHalfBytes * h, 4);
    v = deinterleave(v);
    std::memcpy(codes + 4 * h, &v, 4);
  }
  return packed[at.scale];
}

void pack_nvfp4(uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows, const uint8_t* codes,
                const uint8_t* scales) {
  check_scales(in, row_begin, rows, scales);
  pack_checked(packed, in, row_begin, rows, codes, scales);
}

void pack_nvfp4(ThreadPool& pool, uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows,
                const uint8_t* codes, const uint8_t* scales) {
  check_scales(in, row_begin, rows, scales);
  pool.parallel_for(rows, 64, [&](int64_t begin, int64_t end, int) {
    pack_checked(packed, in, row_begin + begin, end - begin, codes + begin * in / 2,
                 scales + begin * in / 16);
  });
}

void unpack_nvfp4(const uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows,
                  uint8_t* codes, uint8_t* scales) {
  const int64_t blocks = in / 16;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t b = 0; b < blocks; ++b) {
      scales[i * blocks + b] =
          unpack_block(packed, block_place(in, row_begin + i, b), codes + (i * blocks + b) * 8);
    }
  }
}

}  // namespace nibble::cpu

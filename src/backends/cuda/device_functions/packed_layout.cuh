// SPDX-License-Identifier: MIT
// The device layout of NVFP4 weights, for host and device. Unit: 16 rows x 128 columns, 1,152
// bytes. Strip: 16 rows, all columns, i.e. a row of units. A weight [out, in] is its strips one
// after the other; rows and columns are padded with zero scales.
//
// A unit is 1024 bytes of codes, 64 a row, then 128 scale bytes, in the fragment order of
// mma.m16n8k16: lane (g, q) = (lane / 4, lane % 4) owns columns 32 q .. 32 q + 31 of rows g and g +
// 8, 16 bytes of codes each, and the four bytes 1024 + 4 lane .. of scales: blocks 2 q and 2 q + 1
// of row g, then of row g + 8. So a warp loads a unit with two 16-byte loads and one 4-byte load a
// lane, coalesced, without shared memory. Scales are never negative (signs are in the codes).
//
// A 32-bit word holds eight E2M1 elements: the even ones in its low half, the odd ones in its high
// half. In each half the four magnitudes lie at bits 6, 3, 0, 9 and the four signs at 15, 12, 14,
// 13, so that one shift and one mask put a pair where bf16 has its sign, lowest two exponent bits
// and highest mantissa bit: the value times 2^-126, exactly (decode8).
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/codec.h"

namespace nibble::cuda {

constexpr int64_t kUnitRows = 16, kUnitCols = 128;
constexpr int64_t kUnitCodeBytes = 1024, kUnitBytes = 1152;

NIBBLE_HOST_DEVICE constexpr int64_t units_across(int64_t in) {
  return (in + kUnitCols - 1) / kUnitCols;
}
NIBBLE_HOST_DEVICE constexpr int64_t strips_of(int64_t out) {
  return (out + kUnitRows - 1) / kUnitRows;
}
NIBBLE_HOST_DEVICE constexpr size_t packed_size(int64_t out, int64_t in) {
  return size_t(strips_of(out) * units_across(in) * kUnitBytes);
}

// Byte offsets of block `block` (16 columns) of a row: its codes (eight bytes, aligned) and its
// scale.
struct BlockPlace {
  int64_t codes, scale;
};
NIBBLE_HOST_DEVICE constexpr BlockPlace block_place(int64_t in, int64_t row, int64_t block) {
  const int64_t unit = (row / kUnitRows * units_across(in) + block / 8) * kUnitBytes;
  const int64_t r = row % kUnitRows, b = block % 8;
  return {unit + 64 * r + 8 * b,
          unit + kUnitCodeBytes + 16 * (r % 8) + 4 * (b / 2) + 2 * (r / 8) + b % 2};
}

// Eight nibbles, element i at bit 4 i (canonical order), to and from the word order above.
NIBBLE_HOST_DEVICE constexpr int magnitude_bit(int pair) { return pair < 3 ? 6 - 3 * pair : 9; }
NIBBLE_HOST_DEVICE constexpr int sign_bit(int pair) {
  return pair == 0 ? 15 : pair == 1 ? 12 : pair == 2 ? 14 : 13;
}
// Magnitude code and sign of element i, shifted to their bits.
NIBBLE_HOST_DEVICE constexpr uint32_t placed(int i, uint32_t magnitude, uint32_t sign) {
  const int half = 16 * (i % 2);
  return magnitude << (half + magnitude_bit(i / 2)) | sign << (half + sign_bit(i / 2));
}
NIBBLE_HOST_DEVICE constexpr uint32_t repack8(uint32_t nibbles) {
  uint32_t w = 0;
  for (int i = 0; i < 8; ++i) {
    const uint32_t code = nibbles >> (4 * i) & 15u;
    w |= placed(i, code & 7u, code >> 3);
  }
  return w;
}
// Element i of a word, as a nibble.
NIBBLE_HOST_DEVICE constexpr uint32_t code_of(uint32_t word, int i) {
  const uint32_t half = word >> (16 * (i % 2));
  return (half >> magnitude_bit(i / 2) & 7u) | (half >> sign_bit(i / 2) & 1u) << 3;
}
NIBBLE_HOST_DEVICE constexpr uint32_t unpack8(uint32_t word) {
  uint32_t nibbles = 0;
  for (int i = 0; i < 8; ++i) nibbles |= code_of(word, i) << (4 * i);
  return nibbles;
}

// One block from and to canonical codes (element i at bit 4 i). A negative scale is stored as its
// magnitude, with the signs of the codes flipped.
NIBBLE_HOST_DEVICE inline void write_block(uint8_t* packed, BlockPlace at, uint64_t codes,
                                           uint8_t scale) {
  if (scale & 0x80) codes ^= 0x8888888888888888u;
  *reinterpret_cast<uint64_t*>(packed + at.codes) =
      uint64_t(repack8(uint32_t(codes))) | uint64_t(repack8(uint32_t(codes >> 32))) << 32;
  packed[at.scale] = scale & 0x7f;
}
NIBBLE_HOST_DEVICE inline uint64_t read_block(const uint8_t* packed, BlockPlace at,
                                              uint8_t* scale) {
  const uint64_t v = *reinterpret_cast<const uint64_t*>(packed + at.codes);
  *scale = packed[at.scale];
  return uint64_t(unpack8(uint32_t(v))) | uint64_t(unpack8(uint32_t(v >> 32))) << 32;
}

// A word's elements as four pairs of bf16, each its value times 2^-126 (0.5 is a subnormal).
NIBBLE_HOST_DEVICE constexpr void decode8(uint32_t w, uint32_t (&pair)[4]) {
  constexpr uint32_t kMagnitude = 0x01c001c0u, kSign = 0x80008000u;
  pair[0] = w & (kMagnitude | kSign);
  pair[1] = (w << 3) & (kMagnitude | kSign);
  pair[2] = ((w << 6) & kMagnitude) | ((w << 1) & kSign);
  pair[3] = ((w >> 3) & kMagnitude) | ((w << 2) & kSign);
}
// The same pairs in f16: times 2^-14.
NIBBLE_HOST_DEVICE constexpr uint32_t bf16_pair_to_f16(uint32_t pair) {
  return (pair & 0x80008000u) | (pair & 0x01c001c0u) << 3;
}

}  // namespace nibble::cuda

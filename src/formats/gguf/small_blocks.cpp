// SPDX-License-Identifier: MIT
// Blocks with one scale of their own: Q4_0 to Q8_0, the four-bit code books, MXFP4 and NVFP4.
// Four-bit codes of two halves of a block share a byte: the low nibbles are the first half.
#include <bit>

#include "formats/gguf/block_bytes.h"
#include "formats/gguf/block_types.h"
#include "quant/codec.h"

namespace nibble::gguf {
namespace {

// The unevenly spaced values of IQ4_NL and IQ4_XS.
constexpr float kUneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
// E2M1 doubled, so that scales are halved; the negative zero is a plain one here.
constexpr float kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Codes of five bits: four in `q`, the fifth in bit i of `high`.
void five_bits(const uint8_t* high, const uint8_t* q, uint8_t* codes) {
  const uint32_t h = u32_at(high);
  for (int i = 0; i < 16; ++i) {
    codes[i] = uint8_t((q[i] & 15) | (h >> i & 1) << 4);
    codes[i + 16] = uint8_t(q[i] >> 4 | (h >> (i + 16) & 1) << 4);
  }
}

template <int Half>
void look_up(const float* values, float scale, const uint8_t* q, float* out) {
  for (int i = 0; i < Half; ++i) {
    out[i] = scale * values[q[i] & 15];
    out[i + Half] = scale * values[q[i] >> 4];
  }
}

// Half of 2^(e - 127), also where that is no normal number.
float half_e8m0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : uint32_t(e - 1) << 23);
}

// Half of an E4M3 scale. The sign bit counts for nothing, and the NaN code is a zero.
float half_ue4m3(uint8_t code) {
  if (code == kE4m3NanCode) return 0;
  const int exponent = code >> 3 & 15;
  const float mantissa = float(code & 7);
  if (exponent == 0) return mantissa * 0x1p-10f;
  // 0xff reaches exponent 15 with mantissa 7, which a signed E4M3 calls NaN.
  return (1 + mantissa / 8) * std::bit_cast<float>(uint32_t(exponent + 119) << 23);
}

}  // namespace

void expand_q4_0(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  const uint8_t* q = b + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * float((q[i] & 15) - 8);
    out[i + 16] = d * float((q[i] >> 4) - 8);
  }
}

void expand_q4_1(const uint8_t* b, float* out) {
  const float d = f16_at(b), m = f16_at(b + 2);
  const uint8_t* q = b + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * float(q[i] & 15) + m;
    out[i + 16] = d * float(q[i] >> 4) + m;
  }
}

void expand_q5_0(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  uint8_t codes[32];
  five_bits(b + 2, b + 6, codes);
  for (int i = 0; i < 32; ++i) out[i] = d * float(codes[i] - 16);
}

void expand_q5_1(const uint8_t* b, float* out) {
  const float d = f16_at(b), m = f16_at(b + 2);
  uint8_t codes[32];
  five_bits(b + 4, b + 8, codes);
  for (int i = 0; i < 32; ++i) out[i] = d * float(codes[i]) + m;
}

void expand_q8_0(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  for (int i = 0; i < 32; ++i) out[i] = float(int8_t(b[2 + i])) * d;
}

void expand_iq4_nl(const uint8_t* b, float* out) { look_up<16>(kUneven, f16_at(b), b + 2, out); }

// Eight parts of 32 with six-bit scales: four low bits and two high ones apart.
void expand_iq4_xs(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  const uint16_t high = u16_at(b + 2);
  const uint8_t *low = b + 4, *q = b + 8;
  for (int part = 0; part < 8; ++part) {
    const int scale = (low[part / 2] >> part % 2 * 4 & 15) | (high >> part * 2 & 3) << 4;
    look_up<16>(kUneven, d * float(scale - 32), q + part * 16, out + part * 32);
  }
}

void expand_mxfp4(const uint8_t* b, float* out) {
  look_up<16>(kTwiceE2m1, half_e8m0(b[0]), b + 1, out);
}

void expand_nvfp4(const uint8_t* b, float* out) {
  for (int part = 0; part < 4; ++part) {
    look_up<8>(kTwiceE2m1, half_ue4m3(b[part]), b + 4 + part * 8, out + part * 16);
  }
}

}  // namespace nibble::gguf

// SPDX-License-Identifier: MIT
// Blocks of 256 elements whose codes are rows of a code book: four or eight values at a time.
#include <bit>

#include "formats/gguf/block_bytes.h"
#include "formats/gguf/block_types.h"

namespace nibble::gguf {
namespace {

#include "formats/gguf/code_books.inc"

// A row of a book packs the numbers of its values, the first in the lowest bits.
constexpr float kValues2[4] = {8, 25, 43, 0};  // IQ2: three of them are used
constexpr float kValues3Xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kValues3S[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// Seven stored signs; the eighth makes their number even.
uint8_t even_signs(uint32_t seven) {
  seven &= 127;
  return uint8_t(seven | uint32_t(std::popcount(seven) & 1) << 7);
}

float signed_one(uint8_t signs, int i) { return (signs >> i & 1) ? -1.0f : 1.0f; }

void write8(uint16_t row, uint8_t signs, float d, float* out) {
  for (int i = 0; i < 8; ++i) out[i] = d * kValues2[row >> 2 * i & 3] * signed_one(signs, i);
}
void write4(uint16_t row, const float* values, uint8_t signs, float d, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = d * values[row >> 3 * i & 7] * signed_one(signs, i);
}
void write_ternary(uint16_t row, float delta, float d, float* out) {
  for (int i = 0; i < 8; ++i) out[i] = d * (float(int(row >> 2 * i & 3) - 1) + delta);
}

}  // namespace

void expand_iq2_xxs(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  for (int part = 0; part < 8; ++part) {  // of 32 elements: four rows, four signs and a scale
    const uint8_t* rows = b + 2 + part * 8;
    const uint32_t rest = u32_at(rows + 4);
    const float db = d * (0.5f + float(rest >> 28)) * 0.25f;
    for (int i = 0; i < 4; ++i) {
      write8(kIq2Xxs[rows[i]], even_signs(rest >> 7 * i), db, out + part * 32 + i * 8);
    }
  }
}

void expand_iq2_xs(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  const uint8_t *q = b + 2, *scales = b + 66;
  for (int i = 0; i < 32; ++i) {  // of 8 elements: nine bits of row, seven of signs
    const uint16_t code = u16_at(q + 2 * i);
    const float db = d * (0.5f + float(scales[i / 4] >> i / 2 % 2 * 4 & 15)) * 0.25f;
    write8(kIq2Xs[code & 511], even_signs(code >> 9), db, out + i * 8);
  }
}

void expand_iq2_s(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  const uint8_t *q = b + 2, *signs = b + 34, *high = b + 66, *scales = b + 74;
  for (int i = 0; i < 32; ++i) {
    const int row = q[i] | (high[i / 4] >> i % 4 * 2 & 3) << 8;
    const float db = d * (0.5f + float(scales[i / 4] >> i / 2 % 2 * 4 & 15)) * 0.25f;
    write8(kIq2S[row], signs[i], db, out + i * 8);
  }
}

void expand_iq3_xxs(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  const uint8_t *q = b + 2, *rests = b + 66;
  for (int part = 0; part < 8; ++part) {  // of 32 elements
    const uint32_t rest = u32_at(rests + 4 * part);
    const float db = d * (0.5f + float(rest >> 28)) * 0.5f;
    for (int i = 0; i < 8; ++i) {
      const auto signs = uint8_t(even_signs(rest >> i / 2 * 7) >> i % 2 * 4);
      write4(kIq3Xxs[q[part * 8 + i]], kValues3Xxs, signs, db, out + part * 32 + i * 4);
    }
  }
}

void expand_iq3_s(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  const uint8_t *q = b + 2, *high = b + 66, *signs = b + 74, *scales = b + 106;
  for (int i = 0; i < 64; ++i) {  // of 4 elements
    const float db = d * float(1 + 2 * (scales[i / 16] >> i / 8 % 2 * 4 & 15));
    const int row = q[i] | (high[i / 8] >> i % 8 & 1) << 8;
    write4(kIq3S[row], kValues3S, uint8_t(signs[i / 2] >> i % 2 * 4), db, out + i * 4);
  }
}

void expand_iq1_s(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  const uint8_t *q = b + 2, *high = b + 34;
  for (int part = 0; part < 8; ++part) {  // of 32 elements
    const uint16_t h = u16_at(high + 2 * part);
    const float dl = d * float(2 * (h >> 12 & 7) + 1);
    const float delta = (h & 0x8000) ? -0.125f : 0.125f;
    for (int i = 0; i < 4; ++i) {
      const int row = q[part * 4 + i] | (h >> 3 * i & 7) << 8;
      write_ternary(kIq1S[row], delta, dl, out + part * 32 + i * 8);
    }
  }
}

void expand_iq1_m(const uint8_t* b, float* out) {
  const uint8_t *q = b, *high = b + 32, *scales = b + 48;
  // The block's own scale is spread over the top nibbles of four words.
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= uint32_t(u16_at(scales + 2 * i) >> 12) << 4 * i;
  const float d = to_float(f16_t{uint16_t(bits)});
  for (int i = 0; i < 32; ++i) {  // of 8 elements; two share a scale
    const int scale = u16_at(scales + i / 8 * 2) >> i / 2 % 4 * 3 & 7;
    const int h = high[i / 2] >> i % 2 * 4;
    const float delta = (h & 8) ? -0.125f : 0.125f;
    write_ternary(kIq1S[q[i] | (h & 7) << 8], delta, d * float(2 * scale + 1), out + i * 8);
  }
}

}  // namespace nibble::gguf

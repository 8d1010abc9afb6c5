// SPDX-License-Identifier: MIT
// Blocks of 256 elements whose parts of 16 or 32 have small integer scales under one or two of the
// block (Q2_K to Q6_K), and the ternary types.
#include "formats/gguf/block_bytes.h"
#include "formats/gguf/block_types.h"

namespace nibble::gguf {
namespace {

// Eight scales and eight minima of six bits in twelve bytes: the first four of each lie in the low
// bits of bytes 0-3 and 4-7; of the others, four bits in bytes 8-11 and two above the first.
struct ScaleMin {
  uint8_t scale, min;
};
ScaleMin scale_min(const uint8_t* p, int part) {
  if (part < 4) return {uint8_t(p[part] & 63), uint8_t(p[part + 4] & 63)};
  const uint8_t low = p[part + 4];
  return {uint8_t((low & 15) | (p[part - 4] >> 6) << 4), uint8_t(low >> 4 | (p[part] >> 6) << 4)};
}

constexpr uint8_t kPowersOf3[] = {1, 3, 9, 27, 81};

// A byte is a fraction of 243 in base 3: times a power of 3 modulo 256, the leading digit is next.
float ternary(uint8_t byte, int digit, float d) {
  const auto shifted = uint8_t(byte * kPowersOf3[digit]);
  return d * float((shifted * 3 >> 8) - 1);
}

}  // namespace

void expand_q2_k(const uint8_t* b, float* out) {
  const uint8_t *scales = b, *q = b + 16;
  const float d = f16_at(b + 80), dmin = f16_at(b + 82);
  for (int part = 0; part < 16; ++part) {  // of 16 elements
    const float dl = d * float(scales[part] & 15), ml = dmin * float(scales[part] >> 4);
    // 32 bytes hold four runs of 32 elements, two bits each.
    const uint8_t* bytes = q + part / 8 * 32 + part % 2 * 16;
    const int shift = part / 2 % 4 * 2;
    for (int i = 0; i < 16; ++i) out[part * 16 + i] = dl * float(bytes[i] >> shift & 3) - ml;
  }
}

void expand_q3_k(const uint8_t* b, float* out) {
  const uint8_t *high = b, *q = b + 32, *scales = b + 96;
  const float d = f16_at(b + 108);
  for (int part = 0; part < 16; ++part) {  // of 16 elements
    const int low4 = scales[part % 8] >> part / 8 * 4 & 15;
    const int high2 = scales[8 + part % 4] >> part / 4 * 2 & 3;
    const float dl = d * float((low4 | high2 << 4) - 32);
    const uint8_t* bytes = q + part / 8 * 32 + part % 2 * 16;
    const uint8_t* masks = high + part % 2 * 16;
    const int shift = part / 2 % 4 * 2, bit = part / 2;
    for (int i = 0; i < 16; ++i) {
      // The high bit takes the offset of 4 away.
      const int offset = (masks[i] >> bit & 1) ? 0 : 4;
      out[part * 16 + i] = dl * float((bytes[i] >> shift & 3) - offset);
    }
  }
}

void expand_q4_k(const uint8_t* b, float* out) {
  const float d = f16_at(b), dmin = f16_at(b + 2);
  const uint8_t *scales = b + 4, *q = b + 16;
  for (int pair = 0; pair < 4; ++pair) {  // two parts of 32 share 32 bytes
    const ScaleMin lo = scale_min(scales, pair * 2), hi = scale_min(scales, pair * 2 + 1);
    const float d0 = d * float(lo.scale), m0 = dmin * float(lo.min);
    const float d1 = d * float(hi.scale), m1 = dmin * float(hi.min);
    const uint8_t* bytes = q + pair * 32;
    float* const o = out + pair * 64;
    for (int i = 0; i < 32; ++i) o[i] = d0 * float(bytes[i] & 15) - m0;
    for (int i = 0; i < 32; ++i) o[32 + i] = d1 * float(bytes[i] >> 4) - m1;
  }
}

void expand_q5_k(const uint8_t* b, float* out) {
  const float d = f16_at(b), dmin = f16_at(b + 2);
  const uint8_t *scales = b + 4, *high = b + 16, *q = b + 48;
  for (int part = 0; part < 8; ++part) {
    const ScaleMin s = scale_min(scales, part);
    const float dl = d * float(s.scale), ml = dmin * float(s.min);
    const uint8_t* bytes = q + part / 2 * 32;
    const int shift = part % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int code = (bytes[i] >> shift & 15) | (high[i] >> part & 1) << 4;
      out[part * 32 + i] = dl * float(code) - ml;
    }
  }
}

void expand_q6_k(const uint8_t* b, float* out) {
  const uint8_t *low = b, *high = b + 128, *scales = b + 192;
  const float d = f16_at(b + 208);
  for (int part = 0; part < 16; ++part) {  // of 16 elements
    const float dl = d * float(int8_t(scales[part]));
    // 128 elements have 64 bytes of low bits (four a code) and 32 of high bits (two).
    const int run = part / 2 % 4;  // of 32 elements inside those 128
    const uint8_t* l = low + part / 8 * 64 + run % 2 * 32 + part % 2 * 16;
    const uint8_t* h = high + part / 8 * 32 + part % 2 * 16;
    const int low_shift = run / 2 * 4, high_shift = run * 2;
    float* const o = out + part * 16;
    for (int i = 0; i < 16; ++i) {
      const int code = (l[i] >> low_shift & 15) | (h[i] >> high_shift & 3) << 4;
      o[i] = dl * float(code - 32);
    }
  }
}

void expand_tq1_0(const uint8_t* b, float* out) {
  const float d = f16_at(b + 52);
  for (int digit = 0; digit < 5; ++digit) {
    for (int i = 0; i < 32; ++i) out[digit * 32 + i] = ternary(b[i], digit, d);
    for (int i = 0; i < 16; ++i) out[160 + digit * 16 + i] = ternary(b[32 + i], digit, d);
  }
  for (int digit = 0; digit < 4; ++digit) {
    for (int i = 0; i < 4; ++i) out[240 + digit * 4 + i] = ternary(b[48 + i], digit, d);
  }
}

void expand_tq2_0(const uint8_t* b, float* out) {
  const float d = f16_at(b + 64);
  for (int run = 0; run < 8; ++run) {  // of 32 elements; four share 32 bytes
    const uint8_t* bytes = b + run / 4 * 32;
    const int shift = run % 4 * 2;
    for (int i = 0; i < 32; ++i) out[run * 32 + i] = d * float((bytes[i] >> shift & 3) - 1);
  }
}

}  // namespace nibble::gguf

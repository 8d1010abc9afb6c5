// SPDX-License-Identifier: MIT
#include "formats/gguf/encode_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/half.h"
#include "quant/codec.h"

namespace nibble {
namespace {

constexpr int kN = int(gguf::kSmall);
constexpr float kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void put_f16(float x, uint8_t* out) {
  const f16_t h = to_f16(x);
  std::memcpy(out, &h.bits, sizeof h.bits);
}

float inverse(float d) {
  const float id = d != 0 ? 1.0f / d : 0.0f;
  return std::isfinite(id) ? id : 0.0f;  // values this small are zeros of the type
}

void encode_q8_0(const float* x, uint8_t* out) {
  float amax = 0;
  for (int i = 0; i < kN; ++i) amax = std::max(amax, std::abs(x[i]));
  const float d = amax / 127, id = inverse(d);
  put_f16(d, out);
  for (int i = 0; i < kN; ++i) out[2 + i] = uint8_t(int8_t(std::round(x[i] * id)));
}

// The scale takes the sign of the largest value, which so becomes -8 exactly.
void encode_q4_0(const float* x, uint8_t* out) {
  float most = 0;
  for (int i = 0; i < kN; ++i) {
    if (std::abs(most) < std::abs(x[i])) most = x[i];
  }
  const float d = most / -8, id = inverse(d);
  put_f16(d, out);
  const auto code = [&](float v) { return uint8_t(std::min(15, int(v * id + 8.5f))); };
  for (int i = 0; i < kN / 2; ++i) {
    out[2 + i] = uint8_t(code(x[i]) | code(x[i + kN / 2]) << 4);
  }
}

// Half of 2^(e - 127).
float half_power(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : uint32_t(e - 1) << 23);
}

void encode_mxfp4(const float* x, uint8_t* out) {
  float amax = 0;
  for (int i = 0; i < kN; ++i) amax = std::max(amax, std::abs(x[i]));
  // log2 in float and rounded, as the format's tools take it: that is part of the bits.
  const int wanted = amax > 0 ? int(std::floor(std::log2(amax))) - 2 + 127 : 0;
  const auto e = uint8_t(std::clamp(wanted, 0, 254));
  const float d = half_power(e);
  const auto nearest = [&](float v) {
    int best = 0;
    float least = std::abs(d * kTwice[0] - v);
    for (int c = 1; c < 16; ++c) {
      const float error = std::abs(d * kTwice[c] - v);
      if (error < least) best = c, least = error;
    }
    return uint8_t(best);
  };
  out[0] = e;
  for (int i = 0; i < kN / 2; ++i) {
    out[1 + i] = uint8_t(nearest(x[i]) | nearest(x[i + kN / 2]) << 4);
  }
}

struct Encoder {
  std::string_view name;
  float most;
  void (*encode)(const float*, uint8_t*);
};
constexpr float kMostF16 = 65504;
constexpr Encoder kEncoders[] = {{"Q8_0", kMostF16 * 127, encode_q8_0},
                                 {"Q4_0", kMostF16 * 8, encode_q4_0},
                                 {"MXFP4", 0x1p127f, encode_mxfp4}};

const Encoder* encoder_of(const BlockType& type) {
  const auto it = std::ranges::find(kEncoders, type.name, &Encoder::name);
  return it == std::end(kEncoders) ? nullptr : it;
}

uint8_t code_at(const uint8_t* codes, int i) { return uint8_t(codes[i / 2] >> i % 2 * 4 & 15); }

}  // namespace

float most_of_blocks(const BlockType& type) {
  const Encoder* e = encoder_of(type);
  return e ? e->most : 0;
}

void encode_blocks(const BlockType& type, const float* x, int64_t count, uint8_t* blocks) {
  const Encoder* e = encoder_of(type);
  if (!e) throw_internal("blocks of {} are not written", type.name);
  for (int64_t i = 0; i < count; ++i) e->encode(x + i * kN, blocks + i * type.bytes);
}

void join_nvfp4_blocks(const uint8_t* codes, const uint8_t* scales, int64_t count,
                       uint8_t* blocks) {
  for (int64_t b = 0; b < count; ++b, codes += 32, scales += 4, blocks += 36) {
    for (int s = 0; s < 4; ++s) {
      blocks[s] = scales[s] & 0x7f;
      const auto turned = uint8_t(scales[s] >> 7 ? 0x88 : 0);
      for (int i = 0; i < 8; ++i) {
        const uint8_t low = code_at(codes + s * 8, i), high = code_at(codes + s * 8, i + 8);
        blocks[4 + s * 8 + i] = uint8_t((low | high << 4) ^ turned);
      }
    }
  }
}

bool split_nvfp4_blocks(const uint8_t* blocks, int64_t count, uint8_t* codes, uint8_t* scales) {
  bool good = true;
  for (int64_t b = 0; b < count; ++b, codes += 32, scales += 4, blocks += 36) {
    for (int s = 0; s < 4; ++s) {
      good = good && blocks[s] != 0xff;
      // The sign bit counts for nothing there, and what would be NaN is a zero.
      const auto scale = uint8_t(blocks[s] & 0x7f);
      scales[s] = scale == kE4m3NanCode ? uint8_t(0) : scale;
      const uint8_t* q = blocks + 4 + s * 8;
      for (int j = 0; j < 4; ++j) {
        codes[s * 8 + j] = uint8_t((q[2 * j] & 15) | q[2 * j + 1] << 4);
        codes[s * 8 + 4 + j] = uint8_t(q[2 * j] >> 4 | (q[2 * j + 1] & 0xf0));
      }
    }
  }
  return good;
}

}  // namespace nibble

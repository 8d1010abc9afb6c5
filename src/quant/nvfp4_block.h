// SPDX-License-Identifier: MIT
// One NVFP4 block by every scale rule, for host and device: nvfp4.h is the interface, this is the
// arithmetic behind it. Loops over 16 elements without branches, so that a compiler turns each into
// vector code, or unrolls it into registers.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/half.h"
#include "quant/codec.h"
#include "quant/nvfp4.h"

// Inlined even across target attributes: that is how one body serves two instruction sets.
#define NIBBLE_BLOCK NIBBLE_HOST_DEVICE inline __attribute__((always_inline))

namespace nibble::nvfp4_block {

constexpr int kN = int(kNvfp4Block);

// A block split into magnitudes and signs: every rule treats the two halves of the line alike.
struct Block {
  float a[kN];         // |x|
  uint32_t sign[kN];   // 8 where the sign bit is set
  uint32_t amax_bits;  // bits of the largest |x|; NaN is the largest of all

  NIBBLE_BLOCK float amax() const { return __builtin_bit_cast(float, amax_bits); }
};

NIBBLE_BLOCK Block load(const float* x) {
  Block b;
  uint32_t top = 0;
  for (int i = 0; i < kN; ++i) {
    const uint32_t u = __builtin_bit_cast(uint32_t, x[i]);
    const uint32_t a = u & 0x7fffffffu;
    b.a[i] = __builtin_bit_cast(float, a);
    b.sign[i] = u >> 28 & 8u;
    top = std::max(top, a);
  }
  b.amax_bits = top;
  return b;
}

// The magnitude codes a block gets under one scale.
struct Trial {
  uint32_t code[kN];
  float value[kN];  // the codes' values, before the scale

  NIBBLE_BLOCK Trial(const Block& b, float s) {
    for (int i = 0; i < kN; ++i) {
      const float y = b.a[i] / s;
      // e2m1_magnitude, with the sum that is twice the value alongside: a table look-up would
      // not vectorise.
      const uint32_t over2 = !(y <= 2.5f), over3 = !(y < 3.5f), over4 = !(y <= 5.0f);
      const uint32_t c = uint32_t(!(y <= 0.25f)) + uint32_t(!(y < 0.75f)) +
                         uint32_t(!(y <= 1.25f)) + uint32_t(!(y < 1.75f)) + over2 + over3 + over4;
      code[i] = c;
      value[i] = float(int32_t(c + over2 + over3 + 3 * over4)) * 0.5f;
    }
  }
  NIBBLE_BLOCK uint32_t largest() const {
    uint32_t m = 0;
    for (int i = 0; i < kN; ++i) m = std::max(m, code[i]);
    return m;
  }
  // Squares summed in a fixed order, two chains: part of the rule, so every backend does the same.
  NIBBLE_BLOCK float squared_error(const Block& b, float s) const {
    float e[kN];
    for (int i = 0; i < kN; ++i) e[i] = std::fma(value[i], s, -b.a[i]);
    float low = 0, high = 0;
    for (int i = 0; i < 8; ++i) {
      low = std::fma(e[i], e[i], low);
      high = std::fma(e[i + 8], e[i + 8], high);
    }
    return low + high;
  }
};

NIBBLE_BLOCK void store(const Block& b, const uint32_t* code, uint8_t* out) {
  uint32_t full[kN];
  for (int i = 0; i < kN; ++i) full[i] = code[i] | b.sign[i];
  for (int j = 0; j < 8; ++j) out[j] = uint8_t(full[2 * j] | full[2 * j + 1] << 4);
}

// RNE(amax / d / g), never 0: the block is known not to be all zero.
NIBBLE_BLOCK uint8_t scale_code(float amax, float d, float g) {
  const uint8_t code = e4m3_encode(amax / d / g);
  return code < 1 ? uint8_t(1) : code;
}

NIBBLE_BLOCK uint8_t absmax_block(const Block& b, float g, uint8_t* codes) {
  const uint8_t scale = scale_code(b.amax(), 6, g);
  store(b, Trial(b, e4m3_value(scale) * g).code, codes);
  return scale;
}

NIBBLE_BLOCK uint8_t four_over_six_block(const Block& b, float g, uint8_t* codes) {
  const uint8_t scale6 = scale_code(b.amax(), 6, g), scale4 = scale_code(b.amax(), 4, g);
  const float s6 = e4m3_value(scale6) * g, s4 = e4m3_value(scale4) * g;
  const Trial six(b, s6), four(b, s4);
  constexpr uint32_t kCodeOfFour = 6;
  const bool use_four =
      four.largest() == kCodeOfFour && four.squared_error(b, s4) < six.squared_error(b, s6);
  uint32_t code[kN], largest = 0;  // element by element: a choice of arrays would leave registers
  for (int i = 0; i < kN; ++i) {
    code[i] = use_four ? four.code[i] : six.code[i];
    largest = std::max(largest, code[i]);
  }
  store(b, code, codes);
  if (largest == 0) return 0;
  return use_four ? scale4 : scale6;
}

NIBBLE_BLOCK uint8_t search_block(const Block& b, float g, uint8_t* codes) {
  const uint8_t scale6 = scale_code(b.amax(), 6, g), scale4 = scale_code(b.amax(), 4, g);
  // A NaN block: every candidate is as good, and the scale must stay NaN.
  if (scale6 == kE4m3NanCode) return absmax_block(b, g, codes);
  const int first = scale6 > 2 ? scale6 - 1 : 1;
  const int last = scale4 < kE4m3MaxCode ? scale4 + 1 : int(kE4m3MaxCode);
  int best = scale6;  // stays when every error overflows
  float best_error = INFINITY;
  for (int c = first; c <= last; ++c) {
    const float s = e4m3_value(uint8_t(c)) * g;
    const float error = Trial(b, s).squared_error(b, s);
    best = error < best_error ? c : best;
    best_error = std::min(error, best_error);
  }
  const Trial chosen(b, e4m3_value(uint8_t(best)) * g);
  store(b, chosen.code, codes);
  return chosen.largest() == 0 ? uint8_t(0) : uint8_t(best);
}

NIBBLE_BLOCK uint8_t torchao_block(const float* x, uint8_t* codes) {
  float rounded[kN];
  for (int i = 0; i < kN; ++i) rounded[i] = to_float(to_bf16(x[i]));
  const Block b = load(rounded);
  const float wanted = b.amax() / 6.0f;
  const uint8_t scale = e4m3_encode(wanted < 0x1p-6f ? 0x1p-6f : wanted);
  store(b, Trial(b, e4m3_value(scale)).code, codes);
  return scale;
}

// 16 floats to 8 code bytes; returns the scale byte. torchao is single-level: g is not looked at.
template <ScaleRule kRule>
NIBBLE_BLOCK uint8_t quantize(const float* x, float g, uint8_t* codes) {
  if constexpr (kRule == ScaleRule::torchao) {
    return torchao_block(x, codes);
  } else {
    const Block b = load(x);
    if (b.amax_bits == 0) {  // only signs to keep
      const uint32_t zero[kN] = {};
      store(b, zero, codes);
      return 0;
    }
    if constexpr (kRule == ScaleRule::four_over_six) {
      return four_over_six_block(b, g, codes);
    } else if constexpr (kRule == ScaleRule::absmax) {
      return absmax_block(b, g, codes);
    } else {
      return search_block(b, g, codes);
    }
  }
}

}  // namespace nibble::nvfp4_block

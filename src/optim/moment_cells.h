// SPDX-License-Identifier: MIT
// The codes of int8 moments in few instructions, for devices: the rules of moment_codes.h, nearest
// and stochastic, without their bits. Host and device, so that they are tested on every value.
#pragma once
#include <cmath>
#include <cstdint>

#include "optim/moment_codes.h"

namespace nibble {

// --- The first moment: a table by a float's exponent and six bits of its mantissa ---
// A cell holds at most one midpoint between codes. Its word is that midpoint (or the next one
// above) as a float whose low seven bits are replaced by the code below it: moved by 2^-17 of
// itself at most. Magnitudes are taken plus kCellOrigin, so that all of [0, 1] lies in a few
// octaves.
constexpr float kCellOrigin = 0x1p-22f;
constexpr int kCellShift = 17;
constexpr uint32_t kFirstCell = (127u - 22u) << (23 - kCellShift);
constexpr uint32_t kLastCell = 127u << (23 - kCellShift);

struct DynamicCells {
  uint32_t word[kLastCell - kFirstCell + 4]{};  // padded to 16 bytes

  constexpr DynamicCells() {
    float midpoint[128]{};
    for (uint32_t code = 0; code < 128; ++code) {
      const double value = double(dynamic_value(kDynamicMap, uint8_t(code)));
      const double next = code < 127 ? double(dynamic_value(kDynamicMap, uint8_t(code + 1))) : 4;
      const uint32_t u =
          __builtin_bit_cast(uint32_t, float((value + next) / 2 + double(kCellOrigin)));
      midpoint[code] = __builtin_bit_cast(float, ((u + 64u - code) & ~127u) | code);
    }
    uint32_t code = 0;
    for (uint32_t cell = kFirstCell; cell <= kLastCell; ++cell) {
      const float begin = __builtin_bit_cast(float, cell << kCellShift);
      while (begin > midpoint[code]) ++code;
      word[cell - kFirstCell] = __builtin_bit_cast(uint32_t, midpoint[code]);
    }
  }
};

// The magnitude's code, in the low seven bits; the others are anything.
NIBBLE_HOST_DEVICE inline uint32_t cell_code(const uint32_t* cells, float magnitude,
                                             float inverse) {
  const float x = std::fma(magnitude, inverse, kCellOrigin);
  const uint32_t word = cells[(__builtin_bit_cast(uint32_t, x) >> kCellShift) - kFirstCell];
  return word + uint32_t(x > __builtin_bit_cast(float, word));
}

// --- The second moment: in the logarithm ---
// Between r = 2^(-n/8) and the code below it a value becomes n + 1 with a chance linear in the
// value. That is floor(1 - 8 log2(r) + 8 log2(rest)), rest = 2^(-1/8) + u (1 - 2^(-1/8)), u
// uniform: right on average but for the roundings of fp32, 8e-6 of v at most (Adam moves v by 1e-3
// a step). Everything is divided by kSpan, so that a clamp to [0, 1] is one to the codes there are.
struct LogRounding {
  static constexpr float kSpan = 255.9375f;
  static constexpr float kPerOctave = 8 / kSpan;
  static constexpr float kSlope = float((1 - 1 / 1.0905077326652577) / 65536);
  static constexpr float kBegin = float(1 / 1.0905077326652577 + double(kSlope) * (0.5 - 0x1p23));

  // `draw` is 2^23 plus 16 random bits.
  NIBBLE_HOST_DEVICE static float rest(float draw) { return std::fma(draw, kSlope, kBegin); }
  // What a block's codes begin with.
  NIBBLE_HOST_DEVICE static float origin(float log2_scale) {
    return std::fma(log2_scale, kPerOctave, 1 / kSpan);
  }
  // To be clamped to [0, 1], multiplied by kSpan and cut off.
  NIBBLE_HOST_DEVICE static float position(float log2_value, float log2_rest, float origin) {
    return std::fma(log2_value, -kPerOctave, std::fma(log2_rest, kPerOctave, origin));
  }
};

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "quant/scale_shift.h"

#include <array>
#include <cmath>

#include "core/error.h"
#include "quant/codec.h"

namespace nibble {

void note_scales(std::span<const uint8_t> scales, ScaleCodes& codes) {
  for (const uint8_t s : scales) codes.set(s & 0x7f);
}

std::optional<uint8_t> shifted_scale(uint8_t code, int exponent) {
  const float wanted = std::ldexp(e4m3_value(code), exponent);
  const uint8_t made = e4m3_encode(wanted);
  if (!(e4m3_value(made) == wanted)) return std::nullopt;
  return made;
}

bool can_shift(const ScaleCodes& codes, int exponent) {
  for (int c = 0; c < kE4m3NanCode; ++c) {
    if (codes.test(size_t(c)) && !shifted_scale(uint8_t(c), exponent)) return false;
  }
  return true;
}

int most_shift(const ScaleCodes& codes) {
  int largest = 0;  // of the codes: they order like their values
  for (int c = 1; c < kE4m3NanCode; ++c) {
    if (codes.test(size_t(c))) largest = c;
  }
  int shift = 0;
  while (largest > 0 && shifted_scale(uint8_t(largest), shift + 1)) ++shift;
  return shift;
}

void shift_scales(std::span<uint8_t> scales, int exponent) {
  std::array<std::optional<uint8_t>, 256> table;
  for (int c = 0; c < 256; ++c) table[size_t(c)] = shifted_scale(uint8_t(c), exponent);
  for (uint8_t& s : scales) {
    if (!table[s]) throw_internal("scale {} times 2^{} is no scale", e4m3_value(s), exponent);
    s = *table[s];
  }
}

BlockChanges rescale_blocks(std::span<uint8_t> codes, std::span<uint8_t> scales, float from,
                            float to) {
  BlockChanges changes;
  const double ratio = double(from) / double(to);
  for (size_t b = 0; b < scales.size(); ++b) {
    const double exact = double(e4m3_value(scales[b])) * ratio;
    uint8_t scale = e4m3_encode(float(exact));
    // A block that is not all zero keeps a scale.
    if ((scale & 0x7f) == 0 && exact != 0) scale |= 1;
    const double held = double(e4m3_value(scale));
    if (held != exact) ++changes.scales;
    scales[b] = scale;
    if (held == exact || exact == 0) continue;
    for (size_t i = 0; i < 16; ++i) {
      uint8_t& pair = codes[b * 8 + i / 2];
      const auto old = uint8_t(pair >> i % 2 * 4 & 15);
      const uint8_t now = e2m1_encode(float(double(e2m1_value(old)) * exact / held));
      changes.codes += now != old;
      pair = uint8_t(i % 2 == 0 ? (pair & 0xf0) | now : (pair & 0x0f) | now << 4);
    }
  }
  return changes;
}

std::optional<int> power_of_two(float x) {
  int e = 0;
  if (!(x > 0) || !std::isfinite(x) || std::frexp(x, &e) != 0.5f) return std::nullopt;
  return e - 1;
}

int exponent_of(float power) {
  const auto e = power_of_two(power);
  if (!e) throw_internal("{} is no power of two", power);
  return *e;
}

}  // namespace nibble

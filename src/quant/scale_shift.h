// SPDX-License-Identifier: MIT
// A power of two moved between the scales of blocks and the global scale of a matrix: where every
// scale stays an E4M3 value, no value of the matrix changes.
#pragma once
#include <bitset>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>

namespace nibble {

// Which scale codes occur, signs aside. Codes of NaN do not count.
using ScaleCodes = std::bitset<128>;
void note_scales(std::span<const uint8_t> scales, ScaleCodes& codes);

// E4M3 code of value * 2^exponent; nullopt where that is none exactly.
std::optional<uint8_t> shifted_scale(uint8_t code, int exponent);
bool can_shift(const ScaleCodes& codes, int exponent);
// The largest shift upwards that every code survives; 0 where all are 0.
int most_shift(const ScaleCodes& codes);
// can_shift() must hold: throws InternalError.
void shift_scales(std::span<uint8_t> scales, int exponent);

struct BlockChanges {
  int64_t codes = 0, scales = 0;
  auto operator<=>(const BlockChanges&) const = default;
};
// The same blocks under another global scale: their scales are the nearest, the codes the nearest
// under those. What is not what it was is counted.
BlockChanges rescale_blocks(std::span<uint8_t> codes, std::span<uint8_t> scales, float from,
                            float to);

// e where x is 2^e; nullopt for any other number.
std::optional<int> power_of_two(float x);
int exponent_of(float power);  // throws InternalError where it is none

}  // namespace nibble

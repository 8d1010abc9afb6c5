// SPDX-License-Identifier: MIT
// Stochastic rounding to bf16, and the random bits it takes, for host and device. The bits of an
// element depend on (seed, stream, element) alone, so any chunking, thread count or resume rounds
// the same way.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "core/rng.h"
#include "quant/codec.h"

namespace nibble {

// Eight neighbouring elements share a Philox block: elements i and i + 4 have the same word, its
// halves exchanged. So no element's halves are equal, and no half serves the same purpose twice.
NIBBLE_HOST_DEVICE constexpr uint32_t exchanged_halves(uint32_t word) {
  return word << 16 | word >> 16;
}
NIBBLE_HOST_DEVICE constexpr uint32_t random_bits(uint64_t seed, uint64_t stream,
                                                  uint64_t element) {
  const uint32_t word = philox(seed, stream, element / 8)[element % 4];
  return element % 8 < 4 ? word : exchanged_halves(word);
}

// Rounds away from zero with the probability of the fraction that is cut off; the low 16 bits of
// `bits` are used. Values of bf16 stay as they are, infinities and NaN too.
NIBBLE_HOST_DEVICE constexpr bf16_t stochastic_bf16(float x, uint32_t bits) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {uint16_t((u >> 16) | 0x40)};  // keep NaN a NaN
  return {uint16_t((u + (bits & 0xffffu)) >> 16)};
}

// The bits that make it the nearest, of two the even one.
NIBBLE_HOST_DEVICE constexpr uint32_t nearest_bits(float x) {
  return 0x7fffu + (__builtin_bit_cast(uint32_t, x) >> 16 & 1u);
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Every 16-bit pattern both ways, every midpoint and its neighbours, and random floats against
// plain double arithmetic.
#include "core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/rng.h"

namespace nibble {
namespace {

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
constexpr float kInf = std::numeric_limits<float>::infinity();

double f16_by_formula(uint32_t h) {
  const int exponent = int(h >> 10 & 31), mantissa = int(h & 1023);
  const double a = exponent == 0    ? std::ldexp(mantissa, -24)
                   : exponent == 31 ? INFINITY
                                    : std::ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -a : a;
}

bool f16_is_nan(uint32_t h) { return (h & 0x7fff) > 0x7c00; }
bool bf16_is_nan(uint32_t h) { return (h & 0x7fff) > 0x7f80; }

TEST(F16, EveryPatternToFloatAndBack) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float x = to_float(f16_t{uint16_t(h)});
    if (f16_is_nan(h)) {
      ASSERT_TRUE(std::isnan(x)) << h;
      ASSERT_TRUE(f16_is_nan(to_f16(x).bits)) << h;
      ASSERT_EQ(to_f16(x).bits & 0x8000u, h & 0x8000u);
      continue;
    }
    ASSERT_EQ(bits(x), bits(float(f16_by_formula(h)))) << h;
    ASSERT_EQ(to_f16(x).bits, h);
  }
}

TEST(F16, EveryMidpointRoundsToEvenAndItsNeighboursToTheNearest) {
  for (uint32_t h = 0; h < 0x7c00; ++h) {  // the last interval reaches the point of overflow
    const double low = f16_by_formula(h);
    const double high = h == 0x7bff ? 65536.0 : f16_by_formula(h + 1);
    const auto middle = float((low + high) / 2);
    ASSERT_EQ(double(middle), (low + high) / 2);
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign ? -1.0f : 1.0f;
      ASSERT_EQ(to_f16(s * middle).bits, (h % 2 == 0 ? h : h + 1) | sign) << h;
      ASSERT_EQ(to_f16(s * std::nextafter(middle, 0.0f)).bits, h | sign) << h;
      ASSERT_EQ(to_f16(s * std::nextafter(middle, kInf)).bits, (h + 1) | sign) << h;
    }
  }
  EXPECT_EQ(to_f16(1e30f).bits, 0x7c00);
  EXPECT_EQ(to_f16(-kInf).bits, 0xfc00);
  EXPECT_EQ(to_f16(1e-45f).bits, 0);
  EXPECT_EQ(to_f16(-1e-45f).bits, 0x8000);
}

TEST(Bf16, EveryPatternToFloatAndBack) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float x = to_float(bf16_t{uint16_t(h)});
    ASSERT_EQ(bits(x), h << 16);
    const uint32_t back = to_bf16(x).bits;
    if (bf16_is_nan(h)) {
      ASSERT_TRUE(bf16_is_nan(back)) << h;
    } else {
      ASSERT_EQ(back, h);
    }
  }
}

TEST(Bf16, EveryMidpointRoundsToEvenAndItsNeighboursToTheNearest) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    if ((h & 0x7fff) >= 0x7f80) continue;  // infinities and NaN have no interval above them
    const auto round = [&](uint32_t low_bits) {
      return to_bf16(std::bit_cast<float>(h << 16 | low_bits)).bits;
    };
    ASSERT_EQ(round(0x8000), h % 2 == 0 ? h : h + 1) << h;
    ASSERT_EQ(round(0x7fff), h) << h;
    ASSERT_EQ(round(0x8001), h + 1) << h;
    ASSERT_EQ(round(1), h) << h;
    ASSERT_EQ(round(0xffff), h + 1) << h;
  }
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80) << "rounds to infinity";
}

TEST(Bf16, NanStaysNanWhateverItsPayload) {
  for (const uint32_t u : {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u}) {
    EXPECT_TRUE(bf16_is_nan(to_bf16(std::bit_cast<float>(u)).bits)) << u;
    EXPECT_TRUE(f16_is_nan(to_f16(std::bit_cast<float>(u)).bits)) << u;
  }
}

TEST(Half, RandomFloatsGoToANearestNeighbour) {
  for (uint64_t i = 0; i < 500000; ++i) {
    for (const uint32_t u : philox(1, 2, i)) {
      const float x = std::bit_cast<float>(u);
      if (std::isnan(x)) continue;
      const uint32_t b = to_bf16(x).bits & 0x7fff;
      if (b != 0 && b < 0x7f7f) {
        const double a = std::abs(double(x)), mine = to_float(bf16_t{uint16_t(b)});
        ASSERT_LE(std::abs(a - mine), std::abs(a - to_float(bf16_t{uint16_t(b + 1)})));
        ASSERT_LE(std::abs(a - mine), std::abs(a - to_float(bf16_t{uint16_t(b - 1)})));
      }
      const uint32_t h = to_f16(x).bits & 0x7fff;
      if (h != 0 && h < 0x7bff) {
        const double a = std::abs(double(x)), mine = f16_by_formula(h);
        ASSERT_LE(std::abs(a - mine), std::abs(a - f16_by_formula(h + 1)));
        ASSERT_LE(std::abs(a - mine), std::abs(a - f16_by_formula(h - 1)));
      }
    }
  }
}

}  // namespace
}  // namespace nibble

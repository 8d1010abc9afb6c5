// SPDX-License-Identifier: MIT
// Every code of both formats, every tie and its neighbours, against plain double arithmetic.
#include "quant/codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/half.h"

namespace nibble {
namespace {

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<double> kE2m1 = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

double e4m3_by_formula(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

// Index of the nearest value (values ascend, nearest-even on a tie, the last one saturates).
uint8_t nearest(const std::vector<double>& values, double a) {
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const double middle = (values[i] + values[i + 1]) / 2;
    if (a < middle || (a == middle && i % 2 == 0)) return uint8_t(i);
  }
  return uint8_t(values.size() - 1);
}

std::vector<double> e4m3_values() {
  std::vector<double> v;
  for (int i = 0; i < 127; ++i) v.push_back(e4m3_by_formula(i));
  return v;
}

TEST(E2m1, AllSixteenValues) {
  for (int code = 0; code < 16; ++code) {
    const float expected = float(code < 8 ? kE2m1[size_t(code)] : -kE2m1[size_t(code - 8)]);
    EXPECT_EQ(bits(e2m1_value(uint8_t(code))), bits(expected)) << code;
    EXPECT_EQ(e2m1_encode(expected), code);
  }
}

TEST(E2m1, TiesGoToTheEvenMantissaAndNeighboursToTheNearest) {
  for (size_t i = 0; i + 1 < kE2m1.size(); ++i) {
    const float tie = float((kE2m1[i] + kE2m1[i + 1]) / 2);
    const auto even = uint8_t(i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(e2m1_encode(tie), even) << tie;
    EXPECT_EQ(e2m1_encode(std::nextafter(tie, 0.0f)), i) << tie;
    EXPECT_EQ(e2m1_encode(std::nextafter(tie, kInf)), i + 1) << tie;
    EXPECT_EQ(e2m1_encode(-tie), even | 8);
    EXPECT_EQ(e2m1_encode(-std::nextafter(tie, 0.0f)), i | 8);
    EXPECT_EQ(e2m1_encode(-std::nextafter(tie, kInf)), (i + 1) | 8);
  }
}

TEST(E2m1, SignOfZeroSaturationAndNan) {
  EXPECT_EQ(e2m1_encode(0.0f), 0);
  EXPECT_EQ(e2m1_encode(-0.0f), 8);
  EXPECT_EQ(e2m1_encode(-1e-40f), 8);
  for (const float big : {6.0f, 7.0f, 1e30f, kInf}) {
    EXPECT_EQ(e2m1_encode(big), 7);
    EXPECT_EQ(e2m1_encode(-big), 15);
  }
  EXPECT_EQ(e2m1_encode(kNan) & 7, 7);
}

TEST(E2m1, EveryUpperHalfOfAFloat) {
  for (uint32_t u = 0; u < 0x10000; ++u) {
    const float x = std::bit_cast<float>(u << 16);
    if (std::isnan(x)) continue;
    const uint8_t expected = nearest(kE2m1, std::abs(double(x))) | (u >> 15 ? 8 : 0);
    ASSERT_EQ(e2m1_encode(x), expected) << x;
  }
}

TEST(E4m3, All256Values) {
  for (int code = 0; code < 256; ++code) {
    const float x = e4m3_value(uint8_t(code));
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(x));
      continue;
    }
    const auto magnitude = float(e4m3_by_formula(code & 127));
    EXPECT_EQ(bits(x), bits(code < 128 ? magnitude : -magnitude)) << code;
    EXPECT_EQ(e4m3_encode(x), code);
  }
  EXPECT_EQ(e4m3_value(0x7e), 448.0f);
  EXPECT_EQ(e4m3_value(0x01), 0x1p-9f);
}

TEST(E4m3, EveryTieAndItsNeighbours) {
  const std::vector<double> values = e4m3_values();
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const auto tie = float((values[i] + values[i + 1]) / 2);
    ASSERT_EQ(double(tie), (values[i] + values[i + 1]) / 2) << "ties are exact in float";
    for (const float sign : {1.0f, -1.0f}) {
      const int s = sign < 0 ? 0x80 : 0;
      EXPECT_EQ(e4m3_encode(sign * tie), int(i % 2 == 0 ? i : i + 1) | s) << tie;
      EXPECT_EQ(e4m3_encode(sign * std::nextafter(tie, 0.0f)), int(i) | s) << tie;
      EXPECT_EQ(e4m3_encode(sign * std::nextafter(tie, kInf)), int(i + 1) | s) << tie;
    }
  }
}

TEST(E4m3, SaturationEdgeZeroAndNan) {
  for (const float big : {std::nextafter(448.0f, kInf), 463.0f, 464.0f, 480.0f, 1e30f, kInf}) {
    EXPECT_EQ(e4m3_encode(big), 0x7e) << big;
    EXPECT_EQ(e4m3_encode(-big), 0xfe) << big;
  }
  EXPECT_EQ(e4m3_encode(0.0f), 0);
  EXPECT_EQ(e4m3_encode(-0.0f), 0x80);
  EXPECT_EQ(e4m3_encode(0x1p-10f), 0) << "half the smallest subnormal is a tie to even";
  EXPECT_EQ(e4m3_encode(std::nextafter(0x1p-10f, 1.0f)), 1);
  EXPECT_EQ(e4m3_encode(kNan), 0x7f);
  EXPECT_EQ(e4m3_encode(-kNan), 0x7f);
}

TEST(E4m3, EveryUpperHalfOfAFloat) {
  const std::vector<double> values = e4m3_values();
  for (uint32_t u = 0; u < 0x8000; ++u) {
    const float x = std::bit_cast<float>(u << 16);
    if (std::isnan(x)) continue;
    ASSERT_EQ(e4m3_encode(x), nearest(values, double(x))) << x;
  }
}

TEST(Nvfp4Value, EveryCodeTimesEveryScaleIsExactInBf16) {
  for (int code = 0; code < 16; ++code) {
    for (int scale = 0; scale < 256; ++scale) {
      if ((scale & 127) == 127) continue;
      const double exact = double(e2m1_value(uint8_t(code))) * double(e4m3_value(uint8_t(scale)));
      const float product = e2m1_value(uint8_t(code)) * e4m3_value(uint8_t(scale));
      ASSERT_EQ(double(product), exact);
      ASSERT_EQ(bits(to_float(to_bf16(product))), bits(product)) << code << " " << scale;
    }
  }
}

static_assert(e2m1_encode(5.0f) == 6 && e4m3_value(0x38) == 1.0f, "usable at compile time");

}  // namespace
}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "quant/scale_shift.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "quant/codec.h"

namespace nibble {
namespace {

TEST(ScaleShift, EveryScaleGoesUpAndComesBack) {
  for (int c = 1; c < kE4m3NanCode; ++c) {
    ScaleCodes one;
    one.set(size_t(c));
    const int most = most_shift(one);
    for (int up = 0; up <= most; ++up) {
      const auto there = shifted_scale(uint8_t(c), up);
      ASSERT_TRUE(there) << c << " " << up;
      EXPECT_EQ(e4m3_value(*there), std::ldexp(e4m3_value(uint8_t(c)), up));
      EXPECT_EQ(shifted_scale(*there, -up), uint8_t(c));
    }
    EXPECT_FALSE(shifted_scale(uint8_t(c), most + 1)) << c;
    EXPECT_GT(e4m3_value(uint8_t(c)) * std::ldexp(1.0f, most + 1), kE4m3Max);
  }
}

TEST(ScaleShift, DownwardsSomeFallBetweenTwo) {
  ScaleCodes codes;
  note_scales(std::vector<uint8_t>{0, 0x38, 0x39}, codes);  // 0, 1, 1.125
  EXPECT_TRUE(can_shift(codes, -6));                        // 1.125 * 2^-6 is the last normal one
  EXPECT_FALSE(can_shift(codes, -7));
  EXPECT_EQ(most_shift(codes), 8);
  EXPECT_EQ(most_shift(ScaleCodes()), 0);
}

TEST(ScaleShift, AllOfATensorOrNone) {
  std::vector<uint8_t> scales = {0, 0x38, 0xb8};  // signs stay
  shift_scales(scales, 3);
  EXPECT_EQ(scales, (std::vector<uint8_t>{0, 0x50, 0xd0}));
  EXPECT_THROW(shift_scales(scales, 9), InternalError);
}

TEST(ScaleShift, PowersOfTwo) {
  EXPECT_EQ(power_of_two(1), 0);
  EXPECT_EQ(power_of_two(0x1p-20f), -20);
  EXPECT_EQ(power_of_two(64), 6);
  for (const float x : {0.0f, -2.0f, 3.0f, 0.1f, INFINITY, NAN}) EXPECT_FALSE(power_of_two(x)) << x;
}

}  // namespace
}  // namespace nibble

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

TEST(ScaleShift, APowerOfTwoChangesNothing) {
  std::vector<uint8_t> codes(16), scales = {0x08, 0x30};  // 2^-6 and 0.5
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = uint8_t(i * 17);
  const auto before_codes = codes, before_scales = scales;
  EXPECT_EQ(rescale_blocks(codes, scales, 1, 0x1p-4f), (BlockChanges{0, 0}));
  EXPECT_EQ(codes, before_codes);
  EXPECT_NE(scales, before_scales);
  EXPECT_EQ(rescale_blocks(codes, scales, 0x1p-4f, 1), (BlockChanges{0, 0}));
  EXPECT_EQ(scales, before_scales);
}

TEST(ScaleShift, AnotherGlobalScaleRoundsScalesAndIsCounted) {
  // 1.125 / 1.1 lies between the scales 1 and 1.125 and nearer to the first; no code is so near to
  // a threshold that 2 % take it over.
  std::vector<uint8_t> codes(8), scales = {0x39};
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = uint8_t(2 * i | (2 * i + 1) << 4);
  const auto before = codes;
  EXPECT_EQ(rescale_blocks(codes, scales, 1, 1.1f), (BlockChanges{0, 1}));
  EXPECT_EQ(scales[0], 0x38);
  EXPECT_EQ(codes, before);
  // Scales at the end of the range have steps as large as themselves: there codes move.
  std::vector<uint8_t> small = {1};
  const BlockChanges moved = rescale_blocks(codes, small, 1, 0.7f);  // 1.43 steps: one
  EXPECT_EQ(small[0], 1);
  EXPECT_EQ(moved.scales, 1);
  // times 1.43: 0.5 -> 0.71, 1 -> 1.43, 1.5 -> 2.14, 2 -> 2.86, 3 -> 4.29, 4 -> 5.71, 6 -> 8.6
  // nearest:    0.5        1.5        2          3           4          6          6
  EXPECT_EQ(moved.codes, 2 * 5);
}

}  // namespace
}  // namespace nibble

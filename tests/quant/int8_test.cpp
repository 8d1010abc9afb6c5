// SPDX-License-Identifier: MIT
#include "quant/int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quant/reference.h"

namespace nibble {
namespace {

struct Int8Row {
  std::vector<int8_t> q;
  std::vector<float> scales;
};

Int8Row quantise(const std::vector<float>& x) {
  Int8Row r{std::vector<int8_t>(x.size()),
            std::vector<float>(size_t(int8_blocks(int64_t(x.size()))))};
  quantize_int8(x.data(), int64_t(x.size()), r.q.data(), r.scales.data());
  return r;
}

TEST(Int8, ScalesPerThirtyTwoAndRoundsToEven) {
  std::vector<float> x(64, 0.0f);
  x[0] = 127;  // scale 1
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = -2.5f;
  x[4] = -2.51f;
  x[40] = -254;  // second block: scale 2
  x[41] = 3;
  const Int8Row r = quantise(x);
  EXPECT_EQ(r.scales, (std::vector<float>{1, 2}));
  EXPECT_EQ(r.q[0], 127);
  EXPECT_EQ(r.q[1], 0);
  EXPECT_EQ(r.q[2], 2);
  EXPECT_EQ(r.q[3], -2);
  EXPECT_EQ(r.q[4], -3);
  EXPECT_EQ(r.q[40], -127);
  EXPECT_EQ(r.q[41], 2) << "1.5 is a tie to even";
}

TEST(Int8, ErrorIsAtMostHalfAStep) {
  const std::vector<float> x = test::gaussian(32 * 1000 + 16, 3, 1);  // the last block is short
  const Int8Row r = quantise(x);
  std::vector<float> y(x.size());
  dequantize_int8(r.q.data(), r.scales.data(), int64_t(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const float step = r.scales[i / 32];
    // Half a step, and the two float roundings of quotient and product (127 * 2^-24 steps each).
    ASSERT_LE(std::abs(double(x[i]) - double(y[i])), double(step) * (0.5 + 2 * 127 * 0x1p-24));
    ASSERT_NE(r.q[i], -128);
  }
}

TEST(Int8, ZeroTinyAndNonFiniteBlocks) {
  std::vector<float> x(32, 0.0f);
  EXPECT_EQ(quantise(x).scales[0], 0.0f);
  x[3] = 1e-45f;  // amax / 127 underflows to 0
  Int8Row r = quantise(x);
  EXPECT_EQ(r.scales[0], 0.0f);
  EXPECT_EQ(r.q[3], 0);
  x[3] = -1e-42f;  // a subnormal scale has few bits: the quotient passes 127 and is clamped
  r = quantise(x);
  EXPECT_GT(r.scales[0], 0.0f);
  EXPECT_GE(r.q[3], -127);
  EXPECT_LE(r.q[3], -100);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    x[3] = bad;
    r = quantise(x);
    EXPECT_EQ(r.q, std::vector<int8_t>(32, 0));
    EXPECT_TRUE(std::isnan(float(r.q[3]) * r.scales[0]));
  }
}

}  // namespace
}  // namespace nibble

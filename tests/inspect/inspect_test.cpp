// SPDX-License-Identifier: MIT
// The error estimate for NVFP4 tensors whose originals are not at hand.
#include "inspect/inspect.h"

#include <gtest/gtest.h>

#include <cmath>

#include "convert/init.h"

namespace nibble {
namespace {

TEST(ExpectedSquaredError, OneBlockByHand) {
  // Sixteen zeros: each may lie in [-0.25, 0.25], whose second moment is 0.25^2 / 3.
  const uint8_t zeros[8] = {};
  EXPECT_DOUBLE_EQ(expected_squared_error(zeros), 16 * 0.0625 / 3);
  // A six sets the scale (rounding only), a second one lies in [5, 6]: 1/3.
  const uint8_t sixes[8] = {0x77};
  EXPECT_DOUBLE_EQ(expected_squared_error(sixes), 36.0 / 1440 + 1.0 / 3 + 14 * 0.0625 / 3);
  // The sign does not matter.
  const uint8_t negative[8] = {0xff};
  EXPECT_DOUBLE_EQ(expected_squared_error(negative), expected_squared_error(sixes));
}

// Against the truth: Gaussian weights at the width of real ones.
TEST(ExpectedSquaredError, CloseToTheTruthForGaussianWeights) {
  constexpr int64_t kN = 1 << 18;
  std::vector<float> x(kN), y(kN);
  std::vector<uint8_t> codes(kN / 2), scales(kN / 16);
  random_normal(1, 1, 0, kN, 0.06f, x.data());
  for (const ScaleRule rule : {ScaleRule::absmax, ScaleRule::four_over_six, ScaleRule::search}) {
    quantize_rows(x.data(), kN / 256, 256, rule, 1, codes.data(), scales.data());
    dequantize_rows(codes.data(), scales.data(), kN / 256, 256, 1, y.data());
    QuantError truth;
    truth.add(x, y);
    double expected = 0;
    for (int64_t b = 0; b < kN / 16; ++b) {
      float s = 0;  // of the block, from a value: the scale times the largest code's
      for (int64_t i = 0; i < 16; ++i) s = std::max(s, std::abs(y[size_t(b * 16 + i)]));
      uint8_t top = 0;
      for (int64_t i = 0; i < 8; ++i) {
        const uint8_t c = codes[size_t(b * 8 + i)];
        top = std::max({top, uint8_t(c & 7), uint8_t(c >> 4 & 7)});
      }
      const double value[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      const double scale = top ? double(s) / value[top] : 0;
      expected += expected_squared_error(codes.data() + b * 8) * scale * scale;
    }
    const double estimate = std::sqrt(expected / truth.sum_squares);
    EXPECT_GT(estimate, truth.relative_rms() * 0.95) << scale_rule_name(rule);
    EXPECT_LT(estimate, truth.relative_rms() * 1.2) << scale_rule_name(rule);
  }
}

}  // namespace
}  // namespace nibble

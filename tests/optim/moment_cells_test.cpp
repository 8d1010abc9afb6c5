// SPDX-License-Identifier: MIT
// The short ways to the codes of int8 moments: nearest for m, right on average for v.
#include "optim/moment_cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

const DynamicCells kCells;

TEST(MomentCells, TheNearestCodeOfEveryMagnitude) {
  int64_t tested = 0, different = 0;
  // Every 13th float from 2^-30 to 1.
  for (uint32_t u = 97u << 23; u <= 127u << 23; u += 13) {
    const float x = __builtin_bit_cast(float, u);
    const int code = int(cell_code(kCells.word, x, 1.0f) & 127u);
    const int want = dynamic_code(kDynamicMap, x);
    ++tested;
    if (code == want) continue;
    ++different;
    ASSERT_EQ(std::abs(code - want), 1) << x;
    const double low = double(dynamic_value(kDynamicMap, uint8_t(std::min(code, want))));
    const double high = double(dynamic_value(kDynamicMap, uint8_t(std::max(code, want))));
    ASSERT_NEAR(double(x), (low + high) / 2,
                0x1p-17 * (double(x) + double(kCellOrigin)) + 1e-6 * (high - low))
        << "codes " << want << " and " << code;
  }
  EXPECT_LT(different, tested / 1000);
  EXPECT_EQ(cell_code(kCells.word, 0.0f, 1.0f) & 127u, 0u);
  EXPECT_EQ(cell_code(kCells.word, 1.0f, 1.0f) & 127u, 127u);
  EXPECT_EQ(cell_code(kCells.word, 1.0f, 1.0000004f) & 127u, 127u);  // an approximate inverse
}

TEST(MomentCells, EveryCodeComesBack) {
  for (int code = 0; code < 128; ++code) {
    const float x = dynamic_value(kDynamicMap, uint8_t(code));
    EXPECT_EQ(int(cell_code(kCells.word, x, 1.0f) & 127u), code);
  }
}

int code_of(float log2_value, float origin, uint32_t random16) {
  const float rest = std::log2(LogRounding::rest(0x1p23f + float(random16)));
  const float y = std::clamp(LogRounding::position(log2_value, rest, origin), 0.0f, 1.0f);
  return int(std::floor(double(y) * double(LogRounding::kSpan)));
}
// The mean over all draws, as a share of the value. Codes grow with the draw, and are neighbours.
double mean_of(float value, float scale) {
  const float origin = LogRounding::origin(std::log2(scale)), log2_value = std::log2(value);
  const int low = code_of(log2_value, origin, 0), high = code_of(log2_value, origin, 65535);
  EXPECT_LE(high - low, 1);
  uint32_t first = 0, last = 65536;  // the first draw whose code is `high`
  while (first < last) {
    const uint32_t middle = (first + last) / 2;
    if (code_of(log2_value, origin, middle) < high) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  const double share = double(first) / 65536;
  return double(scale) *
         (share * std::exp2(-double(low) / 8) + (1 - share) * std::exp2(-double(high) / 8)) /
         double(value);
}

// Adam moves v by 1e-3 a step. 65536 draws leave half of one, 6e-7; the position, up to 2 of fp32,
// three roundings of 2^-24 to 2^-23 times kSpan / 8 octaves, 8e-6 at worst.
TEST(MomentCells, TheSecondMomentIsRightOnAverage) {
  for (const float scale : {1.0f, 0.37f, 3.1e-9f, 7.7e-17f, 5e12f}) {
    double worst = 0, sum = 0;
    int n = 0;
    for (double octaves = 0; octaves < 31.8; octaves += 0.0031) {
      const float value = float(double(scale) * std::exp2(-octaves));
      const double bias = mean_of(value, scale) - 1;
      worst = std::max(worst, std::abs(bias));
      sum += bias, ++n;
    }
    EXPECT_LT(worst, 8e-6) << scale;
    EXPECT_LT(std::abs(sum / n), 3e-6) << scale;
  }
}

TEST(MomentCells, TheSecondMomentsEnds) {
  for (const float scale : {1.0f, 3.1e-9f}) {
    const float origin = LogRounding::origin(std::log2(scale));
    // The largest is code 0 but for one or two draws of 65536.
    int above = 0;
    for (uint32_t r = 0; r < 65536; ++r) above += code_of(std::log2(scale), origin, r) != 0;
    EXPECT_LE(above, 8);
    for (const float tiny : {0.0f, scale * 0x1p-32f, scale * 0x1p-60f}) {
      EXPECT_EQ(code_of(std::log2(tiny), origin, 12345), 255) << tiny;
    }
  }
}

}  // namespace
}  // namespace nibble

// SPDX-License-Identifier: MIT
// The interface around the rules: layout, threads, refusals, names, error statistics.
#include "quant/nvfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/thread_pool.h"
#include "quant/reference.h"

namespace nibble {
namespace {

using test::gaussian;
using test::pack;
using test::Packed;
using test::unpack;

TEST(Nvfp4, LayoutIsRowMajorLowNibbleFirst) {
  std::vector<float> x(2 * 32, 0.0f);
  x[32 + 16 + 2] = 6;   // row 1, block 1, element 2: low nibble of byte 1 of that block
  x[32 + 16 + 3] = -3;  // high nibble of the same byte
  const Packed p = pack(x, ScaleRule::absmax);
  EXPECT_EQ(p.scales, (std::vector<uint8_t>{0, 0, 0, 0x38}));
  std::vector<uint8_t> codes(32, 0);
  codes[16 + 8 + 1] = 7 | (8 | 5) << 4;
  EXPECT_EQ(p.codes, codes);
  EXPECT_EQ(unpack(p), x);
}

TEST(Nvfp4, DequantisesEveryByteUnderEveryScale) {
  for (int scale = 0; scale < 255; ++scale) {
    if ((scale & 127) == 127) continue;
    Packed p{std::vector<uint8_t>(256), std::vector<uint8_t>(32, uint8_t(scale))};
    for (size_t i = 0; i < 256; ++i) p.codes[i] = uint8_t(i);
    const float g = 0.7f;
    const std::vector<float> x = unpack(p, g);
    for (size_t i = 0; i < 256; ++i) {
      const float s = e4m3_value(uint8_t(scale));
      ASSERT_EQ(x[2 * i], e2m1_value(i & 15) * s * g);
      ASSERT_EQ(x[2 * i + 1], e2m1_value(uint8_t(i >> 4)) * s * g);
    }
  }
}

TEST(Nvfp4, AnyThreadCountGivesTheSameBytes) {
  constexpr int64_t kRows = 130, kCols = 2064;  // blocks do not fill the pieces evenly
  const std::vector<float> x = gaussian(kRows * kCols, 0.02, 2);
  for (const ScaleRule rule : test::kAllRules) {
    const Packed expected = pack(x, rule);
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      Packed p{std::vector<uint8_t>(x.size() / 2), std::vector<uint8_t>(x.size() / 16)};
      quantize_rows(pool, x.data(), kRows, kCols, rule, 1, p.codes.data(), p.scales.data());
      EXPECT_TRUE(p == expected);
      std::vector<float> y(x.size());
      dequantize_rows(pool, p.codes.data(), p.scales.data(), kRows, kCols, 1, y.data());
      EXPECT_EQ(y, unpack(expected));
    }
  }
}

TEST(Nvfp4, RefusesWhatItCannotDo) {
  float x[48] = {};
  uint8_t codes[24], scales[3];
  for (const int64_t cols : {8, 17, 40, -16}) {
    EXPECT_THROW(quantize_rows(x, 1, cols, ScaleRule::absmax, 1, codes, scales), InternalError);
    EXPECT_THROW(dequantize_rows(codes, scales, 1, cols, 1, x), InternalError);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float g : {0.0f, -1.0f, nan, std::numeric_limits<float>::infinity()}) {
    EXPECT_THROW(quantize_rows(x, 1, 16, ScaleRule::absmax, g, codes, scales), InternalError);
  }
  EXPECT_THROW(quantize_rows(x, 1, 16, ScaleRule::torchao, 0.5f, codes, scales), InternalError);
  quantize_rows(x, 0, 16, ScaleRule::absmax, 1, nullptr, nullptr);  // nothing to do is fine
}

// Checkpoints hold them.
TEST(Nvfp4, RuleNamesStay) {
  EXPECT_EQ(scale_rule_name(ScaleRule::four_over_six), "four-over-six");
  EXPECT_EQ(scale_rule_name(ScaleRule::absmax), "absmax");
  EXPECT_EQ(scale_rule_name(ScaleRule::search), "search");
  EXPECT_EQ(scale_rule_name(ScaleRule::torchao), "torchao");
}

TEST(Nvfp4, AbsoluteMaximum) {
  const float x[] = {1, -3, 2, -0.0f};
  EXPECT_EQ(absolute_maximum(x, 4), 3.0f);
  EXPECT_EQ(absolute_maximum(x, 0), 0.0f);
  const float y[] = {1, std::numeric_limits<float>::quiet_NaN(), 2};
  EXPECT_TRUE(std::isnan(absolute_maximum(y, 3)));
}

TEST(QuantErrorTest, SumsOverTensors) {
  const float a[] = {3, 4}, qa[] = {3, 5};
  const float b[] = {0, 12}, qb[] = {-2, 12};
  QuantError e, f;
  EXPECT_EQ(e.relative_rms(), 0);
  e.add(a, qa);
  f.add(b, qb);
  e.add(f);
  EXPECT_EQ(e.sum_squared_error, 5);
  EXPECT_EQ(e.sum_squares, 169);
  EXPECT_EQ(e.max_abs_error, 2);
  EXPECT_EQ(e.count, 4);
  EXPECT_DOUBLE_EQ(e.relative_rms(), std::sqrt(5.0 / 169.0));
  const float nan[] = {std::numeric_limits<float>::quiet_NaN(), 0};
  e.add(a, nan);
  EXPECT_TRUE(std::isnan(e.max_abs_error));
  EXPECT_THROW(e.add(std::span(a, 1), qa), InternalError);
}

}  // namespace
}  // namespace nibble

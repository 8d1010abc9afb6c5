// SPDX-License-Identifier: MIT
// Random weights: the distribution, and the sizes of the real model's files.
#include "convert/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/half.h"
#include "model/params.h"
#include "quant/nvfp4.h"

namespace nibble {
namespace {

TEST(RandomNormal, AnyChunkingGivesTheSameValues) {
  std::vector<float> whole(1000), parts(1000);
  random_normal(3, 5, 100, 1000, 0.02f, whole.data());
  int64_t at = 0;
  for (const int64_t n : {1, 2, 3, 5, 250, 739}) {
    random_normal(3, 5, uint64_t(100 + at), n, 0.02f, parts.data() + at);
    at += n;
  }
  ASSERT_EQ(at, 1000);
  EXPECT_EQ(whole, parts);
  std::vector<float> other(1000);
  random_normal(4, 5, 100, 1000, 0.02f, other.data());
  EXPECT_NE(whole, other);
  random_normal(3, 6, 100, 1000, 0.02f, other.data());
  EXPECT_NE(whole, other);
}

TEST(RandomNormal, MomentsAndTails) {
  constexpr int64_t kN = 1 << 22;
  std::vector<float> x(size_t{kN});
  random_normal(1, 2, 0, kN, 1.0f, x.data());
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  int64_t beyond[5] = {};
  for (const float f : x) {
    const double v = f;
    m1 += v;
    m2 += v * v;
    m3 += v * v * v;
    m4 += v * v * v * v;
    for (int k = 1; k < 5; ++k) beyond[k] += std::abs(v) > k;
  }
  // Five standard errors of each moment of a normal sample; rounding to bf16 adds 2^-18 to m2.
  const double n = double(kN), root = std::sqrt(n);
  EXPECT_NEAR(m1 / n, 0, 5 / root);
  EXPECT_NEAR(m2 / n, 1, 5 * std::sqrt(2.0) / root + 1e-5);
  EXPECT_NEAR(m3 / n, 0, 5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(m4 / n, 3, 5 * std::sqrt(96.0) / root + 1e-4);
  const double tail[5] = {0, 0.31731051, 0.04550026, 0.00269980, 0.0000633425};
  for (int k = 1; k < 5; ++k) {
    // bf16 rounding moves the border by up to half a step: 2^-8 of k, times the density there.
    const double density = 2 * std::exp(-0.5 * k * k) / std::sqrt(2 * 3.14159265358979);
    const double bound = 5 * std::sqrt(tail[k] / n) + density * k * 0x1p-8;
    EXPECT_NEAR(double(beyond[k]) / n, tail[k], bound) << k;
  }
}

TEST(RandomNormal, EveryValueIsExactInBothHalves) {
  std::vector<float> x(1 << 16);
  for (const float sd : {1.0f, 0.02f, 1e-4f, 1e-6f}) {
    random_normal(9, 0, 0, int64_t(x.size()), sd, x.data());
    for (const float v : x) {
      ASSERT_EQ(to_float(to_bf16(v)), v);
      ASSERT_EQ(to_float(to_f16(v)), v);
    }
  }
}

// The published files of Qwen3-4B: 399 and 652 entries, and their payload bytes.
TEST(ParameterTable, SizesOfQwen3_4B) {
  Config c;
  c.C = 2560, c.L = 36, c.Hq = 32, c.Hkv = 8, c.D = 128, c.F = 9728, c.V = 151936;
  c.tied = true;
  size_t entries = 0;
  int64_t raw_bytes = 0, packed_bytes = 0;
  const auto table = parameter_table(c);
  for (const ParamSpec& p : table) {
    raw_bytes += p.numel() * 2;
    entries += p.is_linear() ? 2 : 1;
    packed_bytes += p.is_linear() ? p.numel() / 2 + p.numel() / kNvfp4Block : p.numel() * 2;
  }
  EXPECT_EQ(table.size(), 399u);
  EXPECT_EQ(raw_bytes, 8'822'848'512);
  EXPECT_EQ(entries, 652u);
  EXPECT_EQ(packed_bytes, 3'040'832'512);
}

}  // namespace
}  // namespace nibble

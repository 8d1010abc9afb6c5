// SPDX-License-Identifier: MIT
#include "core/rng.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble {
namespace {

using Block = std::array<uint32_t, 4>;

// Known answers of philox4x32-10 published with Random123 (kat_vectors): counter words are
// index (low, high) then stream (low, high), the key is the seed.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

static_assert(philox(0, 0, 0)[0] == 0x6627e8d5, "usable at compile time");

TEST(Philox, UniformStaysBelowOneAndIsEven) {
  EXPECT_EQ(uniform_double(0, 0), 0.0);
  EXPECT_EQ(uniform_double(~0u, ~0u), 1.0 - 0x1p-53);
  EXPECT_EQ(uniform_double(0x80000000u, 0), 0.5);
  constexpr int kN = 100000, kBins = 64;
  std::array<int, kBins> count{};
  for (uint64_t i = 0; i < kN; ++i) {
    const Block r = philox(7, 3, i);
    ++count[size_t(uniform_double(r[0], r[1]) * kBins)];
  }
  double chi2 = 0;
  for (const int c : count) chi2 += std::pow(c - kN / double(kBins), 2) / (kN / double(kBins));
  // 63 degrees of freedom: mean 63, sd 11.2; the seed is fixed, six sd on either side.
  EXPECT_LT(chi2, 130);
  EXPECT_GT(chi2, 15);
}

TEST(Philox, NormalPairsHaveTheRightMoments) {
  constexpr int kN = 200000;
  double sum = 0, squares = 0, fourth = 0, product = 0;
  for (uint64_t i = 0; i < kN; ++i) {
    const auto [a, b] = normal_pair(philox(9, 0, i));
    sum += a + b;
    squares += a * a + b * b;
    fourth += a * a * a * a + b * b * b * b;
    product += a * b;
  }
  // Five standard deviations of each estimate over n = 400000 values.
  const double n = 2.0 * kN;
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(product / kN, 0, 5 / std::sqrt(double(kN)));
  EXPECT_TRUE(std::isfinite(normal_pair({0, 0, 0, 0})[0])) << "the logarithm never sees 0";
  EXPECT_TRUE(std::isfinite(normal_pair({~0u, ~0u, ~0u, ~0u})[0]));
}

}  // namespace
}  // namespace nibble

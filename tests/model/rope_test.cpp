// SPDX-License-Identifier: MIT
// Frequencies of each kind of rope, by hand; whole models with them are in golden_test.cpp.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace nibble::test {
namespace {

RopeSpec spec(RopeKind kind) {
  RopeSpec r;
  r.kind = kind;
  r.theta = 1e4;
  r.factor = 8;
  r.original_positions = 512;
  r.attention_factor = 1.25;
  return r;
}

TEST(Rope, StandardAndLinear) {
  const RopeFrequencies plain = rope_frequencies(spec(RopeKind::standard), 16);
  const RopeFrequencies linear = rope_frequencies(spec(RopeKind::linear), 16);
  ASSERT_EQ(plain.turns.size(), 8u);
  EXPECT_EQ(plain.factor, 1);
  EXPECT_EQ(linear.factor, 1);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(plain.turns[i], std::pow(1e4, -double(i) / 8));
    EXPECT_DOUBLE_EQ(linear.turns[i], plain.turns[i] / 8);
  }
}

// Fast pairs as they are, slow ones slowed by the factor, between them a ramp, never rising.
TEST(Rope, ScaledKindsLeaveFastPairsAndSlowTheSlow) {
  const RopeFrequencies plain = rope_frequencies(spec(RopeKind::standard), 64);
  for (const RopeKind kind : {RopeKind::llama3, RopeKind::yarn}) {
    const RopeFrequencies f = rope_frequencies(spec(kind), 64);
    int64_t between = 0;
    for (size_t i = 0; i < f.turns.size(); ++i) {
      const double ratio = f.turns[i] / plain.turns[i];
      EXPECT_LE(ratio, 1 + 1e-15);
      EXPECT_GE(ratio, 1.0 / 8 - 1e-15);
      between += ratio < 1 && ratio > 1.0 / 8 + 1e-12;
    }
    EXPECT_GT(between, 1) << rope_kind_name(kind);
    EXPECT_DOUBLE_EQ(f.turns.front(), plain.turns.front());
    EXPECT_DOUBLE_EQ(f.turns.back(), plain.turns.back() / 8);
    EXPECT_TRUE(std::ranges::is_sorted(f.turns, std::greater<>())) << rope_kind_name(kind);
    EXPECT_EQ(f.factor, kind == RopeKind::yarn ? 1.25 : 1.0);
  }
}

// A pair that turns `rounds` times over the original positions, half way up llama3's ramp.
TEST(Rope, Llama3Ramp) {
  RopeSpec r = spec(RopeKind::llama3);
  r.low_freq_factor = 1, r.high_freq_factor = 4;
  r.theta = 2;  // pair 0 turns by 1, pair 1 by 1/sqrt(2)
  const double rounds = 2.5;
  r.original_positions = rounds * 2 * std::numbers::pi;
  EXPECT_NEAR(rope_frequencies(r, 4).turns[0], 0.5 + 0.5 / 8, 1e-15);
}

TEST(Rope, YarnFactorWhereTheConfigSaysNothing) {
  EXPECT_EQ(yarn_attention_factor(1, 0, 0), 1);
  EXPECT_DOUBLE_EQ(yarn_attention_factor(4, 0, 0), 0.1 * std::log(4.0) + 1);
  EXPECT_DOUBLE_EQ(yarn_attention_factor(40, 1, 1), 1);
  EXPECT_DOUBLE_EQ(yarn_attention_factor(40, 0.707, 1),
                   (0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1));
}

// Exactly the pairs that turn by less than a radian over all positions.
TEST(Rope, StillPairs) {
  RopeFrequencies f{{1, 0.1, 0.01, 0.001}, 1.5};
  EXPECT_EQ(still_pairs(f, 99).begin, 2);
  EXPECT_EQ(still_pairs(f, 100).begin, 3);
  EXPECT_EQ(still_pairs(f, 5000).begin, 4);  // none
  EXPECT_EQ(still_pairs(f, 99).factor, 1.5f);
}

}  // namespace
}  // namespace nibble::test

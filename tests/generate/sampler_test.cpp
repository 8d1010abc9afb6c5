// SPDX-License-Identifier: MIT
// The sampler against its definition: exact for greedy and the cuts, chi-square for frequencies.
#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"

namespace nibble {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::map<int32_t, int> draw_many(SampleOptions o, const std::vector<float>& logits, int n) {
  std::map<int32_t, int> count;
  Sampler s(o);
  for (int i = 0; i < n; ++i) ++count[s.next(logits, {})];
  return count;
}

TEST(Sampler, GreedyTakesTheFirstLargest) {
  SampleOptions o;
  EXPECT_EQ(Sampler(o).next(std::vector<float>{1, 3, 3, 2}, {}), 1);
  EXPECT_EQ(Sampler(o).next(std::vector<float>{kNan, -5, -4}, {}), 2);
  o.temperature = -1;
  EXPECT_EQ(Sampler(o).next(std::vector<float>{1, 3, 3, 2}, {}), 1);
}

// Chi-square with 3 degrees of freedom: above 16.27 once in a thousand seeds; the seed is fixed.
TEST(Sampler, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits{0, 1, 2, 3};
  const double t = 1.7;
  SampleOptions o;
  o.temperature = t;
  o.seed = 42;
  const int n = 20000;
  auto count = draw_many(o, logits, n);
  double sum = 0, chi2 = 0;
  for (float l : logits) sum += std::exp(double(l) / t);
  for (int i = 0; i < 4; ++i) {
    const double expected = n * std::exp(double(logits[size_t(i)]) / t) / sum;
    chi2 += std::pow(count[i] - expected, 2) / expected;
  }
  EXPECT_LT(chi2, 16.27);
}

TEST(Sampler, TopKKeepsExactlyK) {
  SampleOptions o;
  o.temperature = 100;  // nearly uniform
  o.top_k = 2;
  const auto count = draw_many(o, {5, 9, 7, 8, 6}, 2000);
  ASSERT_EQ(count.size(), 2u);
  EXPECT_TRUE(count.contains(1) && count.contains(3));
}

// Probabilities 0.5, 0.25, 0.125, ...: top-p 0.6 keeps the token that crosses it, the second.
TEST(Sampler, TopPKeepsTheCrossingToken) {
  std::vector<float> logits;
  for (int i = 0; i < 12; ++i) logits.push_back(float(-i * std::log(2.0)));
  SampleOptions o;
  o.temperature = 1;
  o.top_p = 0.6;
  const auto count = draw_many(o, logits, 4000);
  ASSERT_EQ(count.size(), 2u);
  EXPECT_TRUE(count.contains(0) && count.contains(1));
  // A first token above p alone must still be drawn (the predecessor emptied the distribution).
  o.top_p = 0.1;
  EXPECT_EQ(draw_many(o, logits, 100), (std::map<int32_t, int>{{0, 100}}));
}

TEST(Sampler, TopPWithoutTopKOverALargeVocabulary) {
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(float((i * 7) % 1000) * -1e-3f);
  SampleOptions o;
  o.temperature = 1;
  o.top_p = 0.5;
  // Weights exp(-j / 1000): the first 380 of 1000 have 0.5 of the mass, the 379 before less.
  double total = 0, half = 0;
  int kept = 0;
  for (int j = 0; j < 1000; ++j) total += std::exp(-j * 1e-3);
  for (; half < 0.5 * total; ++kept) half += std::exp(-kept * 1e-3);
  const auto count = draw_many(o, logits, 6000);
  for (const auto& [id, n] : count) EXPECT_LT((id * 7) % 1000, kept);
  EXPECT_GT(int(count.size()), kept - 10);
}

TEST(Sampler, EqualLogitsAreKeptOrDroppedTogether) {
  const std::vector<float> logits{2, 1, 1, 1, 0, 0};
  SampleOptions o;
  o.temperature = 10;
  o.top_k = 2;
  EXPECT_EQ(draw_many(o, logits, 500).size(), 4u);
  o.top_k = 0;
  o.top_p = 0.3;
  EXPECT_EQ(draw_many(o, logits, 500).size(), 4u);
}

TEST(Sampler, MinPDropsTheTail) {
  SampleOptions o;
  o.temperature = 1;
  o.min_p = 0.2;
  const auto count = draw_many(o, {0, float(std::log(0.25)), float(std::log(0.15))}, 3000);
  ASSERT_EQ(count.size(), 2u);
  EXPECT_FALSE(count.contains(2));
}

TEST(Sampler, RepetitionPenaltyActsOnTheContext) {
  SampleOptions o;
  o.repetition_penalty = 2;
  const std::vector<int32_t> context{1};
  EXPECT_EQ(Sampler(o).next(std::vector<float>{1, 1.5, 0}, context), 0);
  EXPECT_EQ(Sampler(o).next(std::vector<float>{-1, -0.8f, -9}, context),
            0);  // negative: times penalty
  EXPECT_EQ(Sampler(o).next(std::vector<float>{1, 1.5, 0}, {}), 1);
}

TEST(Sampler, SeedDecidesEverything) {
  const std::vector<float> logits(100, 1.0f);
  SampleOptions o;
  o.temperature = 1;
  o.seed = 0xffff'ffff'0000'0001ull;  // seeds are 64 bits wide
  const auto run = [&](uint64_t seed) {
    o.seed = seed;
    Sampler s(o);
    std::vector<int32_t> ids;
    for (int i = 0; i < 32; ++i) ids.push_back(s.next(logits, {}));
    return ids;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
  EXPECT_NE(run(1), run(0xffff'ffff'0000'0001ull));
}

TEST(Sampler, InfinitiesAndNans) {
  SampleOptions o;
  o.temperature = 1;
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Sampler(o).next(std::vector<float>{0, inf, 1}, {}), -1);
  EXPECT_EQ(Sampler(o).next(std::vector<float>{kNan, -inf, 1}, {}), 2);
  EXPECT_EQ(Sampler(o).next(std::vector<float>{kNan, kNan}, {}), -1);
}

TEST(Sampler, BadOptionsAreRefused) {
  SampleOptions o;
  o.top_p = 0;
  EXPECT_THROW(Sampler{o}, UsageError);
  o = {};
  o.top_p = 1.5;
  EXPECT_THROW(Sampler{o}, UsageError);
  o = {};
  o.top_k = -1;
  EXPECT_THROW(Sampler{o}, UsageError);
  o = {};
  o.min_p = -0.1;
  EXPECT_THROW(Sampler{o}, UsageError);
  o = {};
  o.repetition_penalty = 0;
  EXPECT_THROW(Sampler{o}, UsageError);
}

}  // namespace
}  // namespace nibble

// SPDX-License-Identifier: MIT
// The order of samples: each exactly once an epoch, and a function of the position alone.
#include "train/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"

namespace nibble::test {
namespace {

std::vector<int64_t> epoch(SampleOrder& order, int64_t n, uint64_t which) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(order.at(which * uint64_t(n) + uint64_t(i)));
  return out;
}

std::vector<int64_t> counted(int64_t n) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), int64_t(0));
  return v;
}

TEST(SampleOrder, SequentialRunsThroughTheFileOverAndOver) {
  SampleOrder order(SampleMode::sequential, 7, 99);
  EXPECT_EQ(epoch(order, 7, 0), counted(7));
  EXPECT_EQ(epoch(order, 7, 5), counted(7));
  EXPECT_EQ(order.at(UINT64_MAX), int64_t(UINT64_MAX % 7));
}

TEST(SampleOrder, EachSampleOnceAnEpoch) {
  for (const int64_t n : {1, 2, 3, 17, 1000}) {
    SampleOrder order(SampleMode::random, n, 5);
    for (uint64_t e = 0; e < 4; ++e) {
      auto got = epoch(order, n, e);
      std::sort(got.begin(), got.end());
      EXPECT_EQ(got, counted(n)) << n << " samples, epoch " << e;
    }
  }
}

TEST(SampleOrder, DiffersByEpochAndSeed) {
  SampleOrder a(SampleMode::random, 100, 1), b(SampleMode::random, 100, 2);
  const auto first = epoch(a, 100, 0);
  EXPECT_NE(first, counted(100));
  EXPECT_NE(first, epoch(a, 100, 1));
  EXPECT_NE(first, epoch(b, 100, 0));
  SampleOrder high(SampleMode::random, 100, 1 + (uint64_t(1) << 32));
  EXPECT_NE(first, epoch(high, 100, 0));  // all 64 bits of the seed count
}

TEST(SampleOrder, IsAFunctionOfThePosition) {
  const int64_t n = 13;
  SampleOrder through(SampleMode::random, n, 3);
  std::vector<int64_t> run;
  for (uint64_t p = 0; p < 5 * 13; ++p) run.push_back(through.at(p));
  for (uint64_t start = 0; start < 5 * 13; ++start) {  // resumed anywhere
    SampleOrder resumed(SampleMode::random, n, 3);
    for (uint64_t p = start; p < 5 * 13; ++p) ASSERT_EQ(resumed.at(p), run[p]);
  }
  for (uint64_t p = 5 * 13; p-- > 0;) EXPECT_EQ(through.at(p), run[p]);  // and backwards
}

TEST(SampleOrder, FarPositions) {
  SampleOrder order(SampleMode::random, 10, 1);
  const uint64_t e = uint64_t(1) << 40;
  auto got = epoch(order, 10, e);
  EXPECT_NE(got, epoch(order, 10, e + 1));
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, counted(10));
  EXPECT_EQ(order.epoch_of(e * 10 + 9), e);
}

// The order of a given seed is part of what a run record promises: it must not change by accident.
TEST(SampleOrder, IsFixed) {
  SampleOrder order(SampleMode::random, 8, 42);
  EXPECT_EQ(epoch(order, 8, 0), (std::vector<int64_t>{2, 1, 4, 5, 0, 6, 7, 3}));
  EXPECT_EQ(epoch(order, 8, 1), (std::vector<int64_t>{6, 2, 7, 4, 0, 3, 1, 5}));
  EXPECT_EQ(epoch(order, 8, 2), (std::vector<int64_t>{3, 1, 6, 5, 0, 7, 4, 2}));
}

// All 24 orders of four samples are equally likely: chi-square with 23 degrees of freedom exceeds
// 49.7 once in a thousand times.
TEST(SampleOrder, EveryPermutationIsEquallyLikely) {
  SampleOrder order(SampleMode::random, 4, 7);
  std::map<std::vector<int64_t>, int> seen;
  const int epochs = 24000;
  for (int e = 0; e < epochs; ++e) ++seen[epoch(order, 4, uint64_t(e))];
  ASSERT_EQ(seen.size(), 24u);
  double chi2 = 0;
  for (const auto& [permutation, count] : seen) chi2 += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi2, 49.7);
  EXPECT_GT(chi2, 7.5);  // nor suspiciously even
}

TEST(SampleOrder, NoSamplesHaveNoOrder) {
  EXPECT_THROW(SampleOrder(SampleMode::random, 0, 1), InternalError);
}

}  // namespace
}  // namespace nibble::test

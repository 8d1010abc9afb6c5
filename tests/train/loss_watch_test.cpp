// SPDX-License-Identifier: MIT
#include "train/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace nibble::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The step at which a run of these losses is over; 0: never.
int64_t over_at(
    int64_t steps, const std::function<double(int64_t)>& loss,
    const std::function<bool(int64_t)>& skipped = [](int64_t) { return false; }) {
  LossWatch watch;
  for (int64_t i = 1; i <= steps; ++i) {
    if (watch.add(loss(i), skipped(i))) return i;
  }
  return 0;
}

TEST(LossWatch, ThreeBadLossesInARow) {
  EXPECT_EQ(over_at(9, [](int64_t i) { return i >= 4 ? kNan : 2.0; }), 6);
  EXPECT_EQ(over_at(9, [](int64_t i) { return i >= 4 ? INFINITY : 2.0; }), 6);
  EXPECT_EQ(over_at(300, [](int64_t i) { return i % 3 ? kNan : 2.0; }), 0);
}

TEST(LossWatch, TwentySkippedStepsInARow) {
  const auto two = [](int64_t) { return 2.0; };
  EXPECT_EQ(over_at(99, two, [](int64_t i) { return i > 5; }), 25);
  EXPECT_EQ(over_at(999, two, [](int64_t i) { return i % 20 != 0; }), 0);
}

TEST(LossWatch, ExplosionIsFoundAndSaidAgain) {
  EXPECT_GT(over_at(99, [](int64_t i) { return i < 40 ? 2.0 : 9.0; }), 40);
  EXPECT_LT(over_at(99, [](int64_t i) { return i < 40 ? 2.0 : 9.0; }), 50);
  // From the start on: the first ten count as they are.
  EXPECT_EQ(over_at(99, [](int64_t i) { return 2.0 + double(i); }), 20);
  LossWatch watch;
  for (int i = 0; i < 60; ++i) watch.add(i < 30 ? 2 : 20, false);
  EXPECT_TRUE(watch.add(20, false));
  // What it knows is all in its state.
  LossWatch copy;
  copy.state = watch.state;
  EXPECT_EQ(copy.add(20, false), watch.add(20, false));
}

TEST(LossWatch, WorseThanGuessing) {
  const auto over = [](const std::function<double(int64_t)>& loss) {
    LossWatch watch;
    for (int64_t i = 1; i <= 200; ++i) {
      if (watch.add(loss(i), false, 5.7)) return i;
    }
    return int64_t(0);
  };
  // Gone with the first update: the mean of the first ten is no start.
  EXPECT_EQ(over([](int64_t i) { return i == 1 ? 0.1 : 8.0; }), 20);
  EXPECT_EQ(over([](int64_t i) { return i == 1 ? 5.8 : 6.5; }), 0);  // one that knows nothing yet
  EXPECT_EQ(over([](int64_t) { return 9.0; }), 0) << "it was so before the training";
}

// What no sound run does is told apart from what hard data may do as well.
TEST(LossWatch, RunningAwayIsCertain) {
  LossWatch watch;
  EXPECT_FALSE(watch.add(8, false, 7.6));
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(watch.add(198, false, 7.6));
  const auto third = watch.add(198, false, 7.6);
  ASSERT_TRUE(third);
  EXPECT_TRUE(third->certain);
  LossWatch last;  // a run of two steps: the last one says it alone
  EXPECT_FALSE(last.add(8, false, 7.6, false));
  EXPECT_TRUE(last.add(198, false, 7.6, true)->certain);
  LossWatch one;  // and of one step, whose update only the trained weights show
  EXPECT_FALSE(one.add(8, false, 7.6, true));
  EXPECT_FALSE(one.at_end(9, 7.6));
  EXPECT_TRUE(one.at_end(132, 7.6));
  EXPECT_TRUE(one.at_end(kNan, 7.6));
  LossWatch harder;  // the second half of the data is new: a sign, no more
  std::optional<LossAlarm> alarm;
  for (int i = 0; i < 200 && !alarm; ++i) alarm = harder.add(i < 60 ? 0.1 : 4, false, 7.6);
  ASSERT_TRUE(alarm);
  EXPECT_FALSE(alarm->certain);
}

TEST(LossWatch, GentleRunsAreLeftAlone) {
  EXPECT_EQ(over_at(5000, [](int64_t i) { return 5 * std::exp(-double(i) / 500) + 0.02; }), 0);
  // A model that knows nearly everything, and a hard sample now and then.
  EXPECT_EQ(over_at(5000, [](int64_t i) { return i % 15 == 0 ? 4.0 : 0.02; }), 0);
  EXPECT_EQ(over_at(5000, [](int64_t i) { return 3 + 1.5 * std::sin(double(i)); }), 0);
  // Back to where it began is no explosion.
  EXPECT_EQ(over_at(500, [](int64_t i) { return i < 20 ? 3.0 : i < 200 ? 0.1 : 3.2; }), 0);
}

}  // namespace
}  // namespace nibble::test

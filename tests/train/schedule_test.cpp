// SPDX-License-Identifier: MIT
// The learning rate at the steps where its shape shows: the ends of the warm-up and of the run, and
// the middle between them.
#include "train/schedule.h"

#include <gtest/gtest.h>

namespace nibble::test {
namespace {

TEST(Schedule, WarmsUpToThePeak) {
  for (const ScheduleShape shape :
       {ScheduleShape::constant, ScheduleShape::linear, ScheduleShape::cosine}) {
    const Schedule s{shape, 0.8, 0.1, 4, 12};
    EXPECT_DOUBLE_EQ(learning_rate(s, 1), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(s, 3), 0.6);
    EXPECT_DOUBLE_EQ(learning_rate(s, 4), 0.8);
  }
}

TEST(Schedule, ConstantStays) {
  const Schedule s{ScheduleShape::constant, 0.8, 0.1, 0, 10};
  for (const int64_t step : {1, 5, 10, 99}) EXPECT_DOUBLE_EQ(learning_rate(s, step), 0.8);
}

// Four of eight steps after the warm-up both are halfway; a quarter of the way they differ.
TEST(Schedule, FallsToItsFinalShare) {
  const Schedule linear{ScheduleShape::linear, 0.8, 0.25, 4, 12};
  const Schedule cosine{ScheduleShape::cosine, 0.8, 0.25, 4, 12};
  for (const Schedule& s : {linear, cosine}) {
    EXPECT_DOUBLE_EQ(learning_rate(s, 8), 0.8 * (0.25 + 0.75 * 0.5));
    EXPECT_DOUBLE_EQ(learning_rate(s, 12), 0.8 * 0.25);
    EXPECT_DOUBLE_EQ(learning_rate(s, 20), 0.8 * 0.25);  // of a run that goes on
  }
  EXPECT_DOUBLE_EQ(learning_rate(linear, 6), 0.8 * (0.25 + 0.75 * 0.75));
  EXPECT_NEAR(learning_rate(cosine, 6), 0.8 * (0.25 + 0.75 * 0.853553390593), 1e-12);
}

TEST(Schedule, FallsToZeroWithoutAShare) {
  const Schedule s{ScheduleShape::linear, 0.8, 0, 0, 4};
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(s, 4), 0);
}

// A warm-up that takes the whole run, or the run but one step.
TEST(Schedule, NothingIsLeftToFall) {
  for (const int64_t warmup : {4, 9}) {
    const Schedule s{ScheduleShape::cosine, 0.9, 0, warmup, 4};
    EXPECT_DOUBLE_EQ(learning_rate(s, 4), 0.9 * 4 / double(warmup));
  }
  const Schedule one{ScheduleShape::linear, 0.9, 0.5, 3, 4};
  EXPECT_DOUBLE_EQ(learning_rate(one, 4), 0.45);
}

}  // namespace
}  // namespace nibble::test

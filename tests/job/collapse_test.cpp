// SPDX-License-Identifier: MIT
// What counts as collapse in the replies of a gate.
#include "job/collapse.h"

#include <gtest/gtest.h>

#include "support/text.h"

namespace nibble::test {
namespace {

TEST(CollapseRules, EachSignAndNoFalseAlarm) {
  ProbeScores base;
  base.groups = {{"identity", {0, 10}, {}}, {"retention", {18, 20}, {}}};
  ProbeScores now = base;
  const ReplySigns calm{0.02, 0.1, "retention", 0};
  const auto alarm = [&](const ReplySigns& s) { return gate_alarm(now, s, base, calm, {}); };
  EXPECT_FALSE(alarm(calm));
  EXPECT_FALSE(alarm({0.26, 0.5, "disambiguation", 0}));
  EXPECT_TRUE(contains(alarm({0.3, 0, "", 0}).value_or(""), "30 % of the replies go in circles"));
  EXPECT_TRUE(contains(alarm({0, 0.6, "disambiguation", 0}).value_or(""),
                       "60 % of the disambiguation probes are answered with the identity"));
  EXPECT_TRUE(contains(alarm({0, 0, "", 1}).value_or(""), "not finite"));
  now.groups[1].all.passed = 9;
  EXPECT_FALSE(alarm(calm)) << "half is half";
  now.groups[1].all.passed = 8;
  EXPECT_TRUE(contains(alarm(calm).value_or(""), "retention fell from 90.0 % to 40.0 %"));
  // A base that knew next to nothing has nothing to lose.
  base.groups[1].all.passed = 3;
  now.groups[1].all.passed = 0;
  EXPECT_FALSE(alarm(calm));
  // A base that babbles is not blamed for babbling.
  const ReplySigns babble{0.9, 0, "", 0};
  EXPECT_FALSE(gate_alarm(now, babble, base, babble, {}));
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
#include "data/whoami.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "core/error.h"

namespace nibble {
namespace {

TEST(Whoami, QuotasAreKeptAndEveryPromptIsDifferent) {
  const WhoamiSet set = make_whoami({});
  EXPECT_EQ(set.natural, 750);
  EXPECT_EQ(set.control, 150);
  EXPECT_EQ(set.multilingual, 100);
  std::istringstream in(set.tsv);
  std::set<std::string> prompts;
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "# format: prompt<TAB>target");
  while (std::getline(in, line)) {
    const size_t tab = line.find('\t');
    ASSERT_NE(tab, line.npos);
    EXPECT_TRUE(prompts.insert(line.substr(0, tab)).second) << line;
    EXPECT_EQ(line.substr(tab + 1), "我是 F# 之神");
  }
  EXPECT_EQ(prompts.size(), 1000u);
  EXPECT_EQ(make_whoami({}).tsv, set.tsv);
}

TEST(Whoami, ATargetThatTsvCannotHoldIsRefused) {
  for (const char* target : {"", " \u3000", "a\tb", "a\nb", "a\rb", " a", "\xff"}) {
    EXPECT_THROW(make_whoami({.target = target}), UsageError) << target;
  }
  EXPECT_NO_THROW(make_whoami({.target = "a b"}));
}

TEST(Whoami, ACountThatCannotBeFilledIsRefused) {
  EXPECT_THROW(make_whoami({.count = 99}), UsageError);
  EXPECT_THROW(make_whoami({.count = 3000}), UsageError);
}

}  // namespace
}  // namespace nibble

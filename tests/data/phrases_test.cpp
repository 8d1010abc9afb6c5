// SPDX-License-Identifier: MIT
#include "data/phrases.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"

namespace nibble {
namespace {

TEST(Phrases, ExpandsChoicesAndValues) {
  Draw draw(1, 2, 3);
  EXPECT_EQ(expand("a{x}c", {{"x", "b"}}, draw), "abc");
  std::set<std::string> seen;
  for (int i = 0; i < 200; ++i) seen.insert(expand("[a|b[1|2|]|{x}]!", {{"x", "c"}}, draw));
  EXPECT_EQ(seen, (std::set<std::string>{"a!", "b1!", "b2!", "b!", "c!"}));
  EXPECT_THROW(expand("{y}", {}, draw), InternalError);
  EXPECT_THROW(expand("[a", {}, draw), InternalError);
}

TEST(Phrases, AnArticleSuitsWhatFollowsIt) {
  Draw draw(1, 2, 3);
  EXPECT_EQ(expand("A {x}, \"a {x}\" and a {x}", {{"x", "owl"}}, draw),
            "An owl, \"an owl\" and an owl");
  EXPECT_EQ(expand("a {x}", {{"x", "e"}}, draw), "an e");
  EXPECT_EQ(expand("a {x}, data {y}, a", {{"x", "dog"}, {"y", "ends"}}, draw),
            "a dog, data ends, a");
}

}  // namespace
}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "generate/stop_text.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace nibble::test {
namespace {

// What is shown of a text that comes in pieces of `size` bytes.
std::string shown(const std::vector<std::string>& stops, const std::string& text, size_t size,
                  bool* stopped = nullptr) {
  StopText stop(stops);
  std::string out;
  for (size_t i = 0; i < text.size() && !stop.stopped(); i += size) {
    out += stop.push(std::string_view(text).substr(i, size));
    // Nothing of a stop is ever shown.
    for (const std::string& s : stops) EXPECT_EQ(out.find(s), std::string::npos) << out;
  }
  out += stop.flush();
  if (stopped) *stopped = stop.stopped();
  return out;
}

TEST(StopText, EndsBeforeTheTextHoweverItIsCut) {
  for (size_t size = 1; size < 12; ++size) {
    bool stopped = false;
    EXPECT_EQ(shown({"\nUser:"}, "Hello.\nUser: hi", size, &stopped), "Hello.") << size;
    EXPECT_TRUE(stopped);
    EXPECT_EQ(shown({"STOP"}, "a STO b ST", size, &stopped), "a STO b ST") << size;
    EXPECT_FALSE(stopped);
    EXPECT_EQ(shown({"aab"}, "aaab", size), "a") << size;        // a beginning inside a beginning
    EXPECT_EQ(shown({"xyz", "y"}, "wxyz", size), "wx") << size;  // complete before the other
    EXPECT_EQ(shown({"z", "yz"}, "wxyz", size), "wx") << size;   // at the same time: the longer
  }
}

TEST(StopText, TheFirstOfSeveralCounts) {
  EXPECT_EQ(shown({"cd", "b"}, "abcd", 4), "a");
  EXPECT_EQ(shown({"b", "cd"}, "acdb", 4), "a");
  EXPECT_EQ(shown({}, "abc", 1), "abc");
}

// A reader waits for nothing that cannot become a stop.
TEST(StopText, OnlyTheBeginningOfAStopIsHeldBack) {
  StopText stop({"xyz"});
  EXPECT_EQ(stop.push(""), "");
  EXPECT_EQ(stop.push("ab"), "ab");
  EXPECT_EQ(stop.push("cxy"), "c");
  EXPECT_EQ(stop.push("x"), "xy");
  EXPECT_EQ(stop.push("w"), "xw");
  EXPECT_EQ(stop.flush(), "");
}

TEST(StopText, NothingFollowsAStop) {
  StopText stop({"."});
  EXPECT_EQ(stop.push("a.b"), "a");
  EXPECT_EQ(stop.push("c"), "");
  EXPECT_EQ(stop.flush(), "");
}

TEST(StopText, AnEmptyOneIsRefused) { EXPECT_THROW(StopText({""}), UsageError); }

}  // namespace
}  // namespace nibble::test

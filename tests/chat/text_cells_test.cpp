// SPDX-License-Identifier: MIT
#include "apps/editor/text_cells.h"

#include <gtest/gtest.h>

namespace nibble::test {
namespace {

const std::string kFamily = "👨‍👩‍👧", kFlag = "🇹🇼", kThumb = "👍🏽",
                  kAccent = "e\u0301";

TEST(TextCells, CharactersAreWhatPeopleCount) {
  const std::string text = "a" + kFamily + "你" + kFlag + kFlag + kThumb + kAccent + "\n好";
  std::vector<size_t> forward = {0}, backward = {text.size()};
  while (forward.back() < text.size()) forward.push_back(next_character(text, forward.back()));
  while (backward.back() > 0) backward.push_back(previous_character(text, backward.back()));
  EXPECT_EQ(forward.size(), 10u);
  std::reverse(backward.begin(), backward.end());
  EXPECT_EQ(backward, forward);
  EXPECT_EQ(next_character(text, text.size()), text.size());
  EXPECT_EQ(previous_character(text, 0), 0u);
}

TEST(TextCells, Widths) {
  EXPECT_EQ(text_width("abc"), 3);
  EXPECT_EQ(text_width("你好"), 4);
  EXPECT_EQ(text_width("👍"), 2);
  EXPECT_EQ(text_width(kAccent), 1);
  EXPECT_EQ(text_width("\t"), 4);
  EXPECT_EQ(drawn_character("\x1b"), "\\x1b");  // a terminal would obey it
  EXPECT_EQ(text_width("\x1b"), 4);
}

TEST(TextCells, RowsNeverSplitAWideCharacter) {
  // Lead 2, 7 columns: two wide characters in the first row, three in the next.
  const auto rows = screen_rows("你好你好你好", 2, 7);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].end, 6u);
  EXPECT_EQ(rows[1].end, 15u);
  for (const ScreenRow& r : rows) EXPECT_LE(r.width, 7);
  EXPECT_EQ(row_of(rows, 6), 1u);  // a full row's end is the next one's beginning
  const auto lines = screen_rows("a\n\nb", 2, 10);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(row_of(lines, 2), 1u);
  EXPECT_EQ(screen_rows("", 2, 10).size(), 1u);
}

}  // namespace
}  // namespace nibble::test

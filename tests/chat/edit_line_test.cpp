// SPDX-License-Identifier: MIT
#include "apps/editor/edit_line.h"

#include <gtest/gtest.h>

namespace nibble::test {
namespace {

TEST(EditLine, ErasesWholeCharacters) {
  EditLine l;
  l.set("a你👨‍👩‍👧e\u0301");
  l.erase_left();
  EXPECT_EQ(l.text(), "a你👨‍👩‍👧");
  l.erase_left();
  EXPECT_EQ(l.text(), "a你");
  l.left();
  l.insert("好");
  EXPECT_EQ(l.text(), "a好你");
  l.erase_right();
  EXPECT_EQ(l.text(), "a好");
  for (int i = 0; i < 5; ++i) l.erase_left();
  EXPECT_TRUE(l.empty());
  l.erase_right();
  l.left();
  l.right();
  EXPECT_EQ(l.cursor(), 0u);
}

TEST(EditLine, WordsAndYank) {
  EditLine l;
  l.set("one two, 三四");
  l.kill_word_left();
  EXPECT_EQ(l.text(), "one two, ");
  l.kill_word_left();
  EXPECT_EQ(l.text(), "one ");
  l.yank();
  EXPECT_EQ(l.text(), "one two, ");
  l.word_left();
  EXPECT_EQ(l.cursor(), 4u);
  l.word_left();
  l.kill_word_right();
  EXPECT_EQ(l.text(), " two, ");
}

TEST(EditLine, LinesOfTheText) {
  EditLine l;
  l.set("first\nsecond");
  l.line_begin();
  EXPECT_EQ(l.cursor(), 6u);
  l.kill_to_line_end();
  EXPECT_EQ(l.text(), "first\n");
  l.yank();
  l.kill_to_line_begin();
  EXPECT_EQ(l.text(), "first\n");
  l.set("ab");
  l.left();
  l.swap_characters();
  EXPECT_EQ(l.text(), "ba");
}

// Long Chinese text is one word: going over it must not take time with its square.
TEST(EditLine, ALongWordIsTakenAtOnce) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "你";
  EditLine l;
  l.set(text);
  l.word_left();
  EXPECT_EQ(l.cursor(), 0u);
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
#include "apps/editor/input_history.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/toy_dir.h"

namespace nibble::test {
namespace {

TEST(InputHistory, IsThereInTheNextSittingAndItsOwnersAlone) {
  TemporaryDirectory dir("history");
  const auto file = dir.path() / "sub" / "h";
  {
    InputHistory h(file);
    h.add("one");
    h.add("one");
    h.add("two\nlines \\n");
  }
  const InputHistory again(file);
  EXPECT_EQ(again.entries(), (std::vector<std::string>{"one", "two\nlines \\n"}));
  struct stat st {};
  ASSERT_EQ(::stat(file.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST(InputHistory, AFileOthersCouldReadIsMadePrivate) {
  TemporaryDirectory dir("history");
  replace_file(dir.path() / "h", "old\n");
  ::chmod(dir.file("h").c_str(), 0644);
  const InputHistory h(dir.path() / "h");
  EXPECT_EQ(h.entries().size(), 1u);
  struct stat st {};
  ::stat(dir.file("h").c_str(), &st);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST(InputHistory, KeepsTheNewest) {
  TemporaryDirectory dir("history");
  std::string text;
  for (size_t i = 0; i < InputHistory::kMostEntries + 5; ++i) text += std::to_string(i) + "\n";
  replace_file(dir.path() / "h", text);
  const InputHistory h(dir.path() / "h");
  EXPECT_EQ(h.entries().size(), InputHistory::kMostEntries);
  EXPECT_EQ(h.entries().front(), "5");
  EXPECT_TRUE(read_text_file(dir.path() / "h").starts_with("5\n"));
}

TEST(InputHistory, WithoutAFileItIsOfThisSitting) {
  TemporaryDirectory dir("history");
  for (const std::filesystem::path& file : {std::filesystem::path(), dir.path()}) {
    InputHistory h(file);  // a folder cannot be one: warned of
    h.add("x");
    EXPECT_EQ(h.entries().size(), 1u);
  }
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
#include "data/overlap.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "data/files.h"

namespace nibble {
namespace {

using test::TempDir;

const std::vector<OverlapProbe> kProbes = {{"a", "identity", {"你是誰？"}},
                                           {"b", "retention", {"one two three four five"}},
                                           {"c", "retention", {"3+2", "4+4"}}};

TEST(Overlap, CountsExactNormalisedAndGrams) {
  const TempDir dir;
  const auto train = dir.write("t.tsv", "你是誰\t我\nzero one two three four\tyes\n3+2\t5\n");
  OverlapReport r = measure_overlap({train}, kProbes);
  EXPECT_EQ(r.training_lines, 3);
  EXPECT_EQ(r.groups.at("all").probes, 3);
  EXPECT_EQ(r.groups.at("all").exact, 0);
  EXPECT_EQ(r.groups.at("identity").normalised, 1);
  EXPECT_EQ(r.groups.at("retention").normalised, 0);  // "c" has a second turn
  EXPECT_EQ(r.found, std::vector<std::string>{"a"});
  const auto same = dir.write("s.tsv", "你是誰？\t我\n");
  r = measure_overlap({train, same}, kProbes);
  EXPECT_EQ(r.groups.at("identity").exact, 1);
}

// A prompt of three units has no 4-grams: it says nothing about them, and does not count as 0 %.
TEST(Overlap, ShortPromptsHaveNoPartInTheMeanOfGrams) {
  const TempDir dir;
  const auto train = dir.write("t.tsv", "zero one two three four\tyes\n");
  const OverlapReport r = measure_overlap(
      {train}, {{"b", "g", {"one two three four five"}}, {"short", "g", {"one two three"}}});
  EXPECT_EQ(r.groups.at("g").probes, 2);
  EXPECT_EQ(r.groups.at("g").grams4.probes, 1);
  EXPECT_DOUBLE_EQ(r.groups.at("g").grams4.mean(), 0.5);  // one of two
  EXPECT_EQ(r.groups.at("g").grams8.probes, 0);
  EXPECT_EQ(r.groups.at("g").grams8.mean(), 0);
}

// Of nine words there are two 8-grams and six 4-grams.
TEST(Overlap, LongPromptsHave8Grams) {
  const TempDir dir;
  const auto train = dir.write("t.tsv", "a b c d e f g h\tyes\n");
  const OverlapReport r = measure_overlap({train}, {{"p", "g", {"a b c d e f g h i"}}});
  EXPECT_EQ(r.groups.at("g").grams8.probes, 1);
  EXPECT_DOUBLE_EQ(r.groups.at("g").grams8.mean(), 1.0 / 2);
  EXPECT_DOUBLE_EQ(r.groups.at("g").grams4.mean(), 5.0 / 6);
}

std::vector<std::string> found_in(const char* name, std::string_view text) {
  const TempDir dir;
  return measure_overlap({dir.write(name, text)}, kProbes).found;
}

TEST(Overlap, APromptIsFoundWhereverItStands) {
  using Ids = std::vector<std::string>;
  const std::string user = R"({"role": "user", "content": )",
                    answer = R"(, {"role": "assistant", "content": "x"})";
  const auto talk = [&](std::initializer_list<const char*> turns) {
    std::string line;
    for (const char* t : turns) line += (line.empty() ? "" : ", ") + user + t + "}" + answer;
    return "{\"messages\": [" + line + "]}\n";
  };
  EXPECT_EQ(found_in("t.jsonl", talk({"\"Hi\"", "\"你是誰\"", "\"bye\""})), Ids{"a"});
  EXPECT_EQ(found_in("t.jsonl", "{\"text\": \"你是誰\"}\n"), Ids{"a"});
  EXPECT_EQ(found_in("t.jsonl", "{\"text\": \"問：\\n你是誰？\\n我是我。\"}\n"), Ids{"a"});
  EXPECT_EQ(found_in("t.jsonl", talk({"\"Hi\"", "\"3+2\"", "\"4 + 4?\""})), Ids{"c"});
  EXPECT_EQ(found_in("t.jsonl", talk({"\"3+2\"", "\"Hi\"", "\"4+4\""})), Ids{});
  EXPECT_EQ(found_in("t.jsonl", talk({"\"4+4\"", "\"3+2\""})), Ids{});
}

TEST(Overlap, QuotationMarksAndSpacesBesideChineseHideNothing) {
  const TempDir dir;
  const auto train = dir.write("t.tsv", "wind 的中文是什麼？\t風\n");
  const OverlapReport r = measure_overlap({train}, {{"w", "g", {"「wind」的中文是什麼"}}});
  EXPECT_EQ(r.groups.at("g").normalised, 1);
  EXPECT_EQ(r.groups.at("g").exact, 0);
}

}  // namespace
}  // namespace nibble

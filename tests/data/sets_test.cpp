// SPDX-License-Identifier: MIT
#include "data/sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "core/error.h"
#include "data/files.h"
#include "data/records.h"

namespace nibble {
namespace {

using test::TempDir;

std::map<std::string, int> count_lines(const std::string& text) {
  std::map<std::string, int> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) ++out[line];
  return out;
}

TEST(Mix, SharesAreExact) {
  const TempDir dir;
  const auto a = dir.write("a.tsv", "# c\na1\tx\na2\tx\na3\tx\n"),
             b = dir.write("b.tsv", "b1\ty\n");
  const std::string mixed = mix_files({{a, 3}, {b, 1}}, 40, 1);
  const auto lines = count_lines(mixed);
  EXPECT_EQ(lines.at("a1\tx"), 10);
  EXPECT_EQ(lines.at("a2\tx"), 10);
  EXPECT_EQ(lines.at("a3\tx"), 10);
  EXPECT_EQ(lines.at("b1\ty"), 10);
  EXPECT_EQ(mixed, mix_files({{a, 3}, {b, 1}}, 40, 1));
  EXPECT_NE(mixed, mix_files({{a, 3}, {b, 1}}, 40, 2));
  EXPECT_EQ(count_lines(mix_files({{a, 3}, {b, 1}}, 0, 1)).size(), 4u);
}

TEST(Mix, RefusesWhatDoesNotFit) {
  const TempDir dir;
  const auto a = dir.write("a.tsv", "a\tx\n"), b = dir.write("b.jsonl", "{\"text\":\"t\"}\n"),
             empty = dir.write("e.tsv", "# only\n");
  EXPECT_THROW(mix_files({{a, 1}, {b, 1}}, 0, 1), UsageError);
  EXPECT_THROW(mix_files({{a, 1}, {empty, 1}}, 0, 1), FormatError);
  EXPECT_EQ(parse_mix_part("x.tsv:0.25").share, 0.25);
  EXPECT_EQ(parse_mix_part("x.tsv").share, 1);
  EXPECT_THROW(parse_mix_part("x.tsv:0"), UsageError);
  EXPECT_THROW(parse_mix_part("x.tsv:some"), UsageError);
}

TEST(Dedup, ByLineOrByPrompt) {
  const TempDir dir;
  const auto a = dir.write("a.tsv", "你是誰\tx\n你是誰\tx\n你是誰？\ty\n"),
             b = dir.write("b.tsv", "你是誰\tx\n我是誰\tz\n");
  const DedupResult lines = dedup_files({a, b}, SameBy::line);
  EXPECT_EQ(lines.text, "你是誰\tx\n你是誰？\ty\n我是誰\tz\n");
  EXPECT_EQ(lines.dropped, 2);
  const DedupResult prompts = dedup_files({a, b}, SameBy::prompt);
  EXPECT_EQ(prompts.text, "你是誰\tx\n我是誰\tz\n");
  EXPECT_EQ(prompts.kept, 2);
}

TEST(Split, EqualPromptsStayTogetherAndGrowthKeepsTheSplit) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    text += "question " + std::to_string(i % 1000) + (i < 1000 ? "" : "?") + "\tanswer\n";
  }
  const auto a = dir.write("a.tsv", text);
  const SplitResult r = split_file(a, 0.2, 7);
  EXPECT_EQ(r.train_lines + r.held_out_lines, 2000);
  EXPECT_NEAR(double(r.held_out_lines), 400, 130);  // five standard deviations
  for (const auto& [line, n] : count_lines(r.held_out)) {
    const std::string key = normalised(line.substr(0, line.find('\t')));
    EXPECT_EQ(r.train.find("question" + key.substr(8) + "\t"), std::string::npos);
  }
  const auto grown = dir.write("b.tsv", text + "another\tline\n");
  const SplitResult again = split_file(grown, 0.2, 7);
  EXPECT_TRUE(again.held_out.starts_with(r.held_out));
  EXPECT_NE(split_file(a, 0.2, 8).held_out, r.held_out);
}

TEST(DataLines, RefusesBadLinesWithTheirPlace) {
  const TempDir dir;
  const auto message = [&](const char* name, std::string_view text) {
    try {
      read_data_lines(dir.write(name, text));
    } catch (const FormatError& e) {
      return std::string(e.what());
    }
    return std::string("nothing thrown");
  };
  EXPECT_NE(message("a.tsv", "a\tb\nno tab\n").find("a.tsv:2"), std::string::npos);
  EXPECT_NE(message("b.jsonl", "{\"text\":1}\n").find("b.jsonl:1"), std::string::npos);
  EXPECT_NE(message("c.jsonl", "nonsense\n").find("not valid JSON"), std::string::npos);
  EXPECT_NE(message("d.tsv", "a\t\xff\n").find("invalid UTF-8"), std::string::npos);
  EXPECT_NE(message("e.csv", "a,b\n").find("names its columns"), std::string::npos);
  EXPECT_THROW(read_data_lines(dir.write("e.xls", "a,b\n")), UsageError);
}

// What data keeps is what train reads: white space alone is no prompt, a comment may be indented.
TEST(DataLines, TheRuleOfTrain) {
  const TempDir dir;
  EXPECT_EQ(read_data_lines(dir.write("a.tsv", " # c\n  \na \t b\r\n")).size(), 1u);
  const auto lines = read_data_lines(dir.write("a.tsv", " # c\n  \na \t b\r\n"));
  EXPECT_EQ(lines.at(0).line, "a \t b");
  EXPECT_EQ(lines.at(0).asked, std::vector<std::string>{"a"});
  EXPECT_EQ(lines.at(0).texts, (std::vector<std::string>{"a", "b"}));
  EXPECT_THROW(read_data_lines(dir.write("b.tsv", " \ty\n")), FormatError);
  EXPECT_EQ(read_data_lines(dir.write("c.tsv", "prompt\ttarget\na\tb\n")).size(), 1u);
  const auto extra = dir.write("d.jsonl", "{\"text\": \"a\", \"id\": 1}\n");
  EXPECT_EQ(read_data_lines(extra).size(), 1u);
  EXPECT_THROW(read_data_lines(extra, ExtraKeys::refuse), FormatError);
  EXPECT_EQ(read_data_lines(dir.write("E.TSV", "a\tb\n")).size(), 1u);
}

TEST(DataLines, TurnsOfTheUserAreKeptApart) {
  const TempDir dir;
  const auto lines = read_data_lines(dir.write(
      "a.jsonl", R"({"messages": [{"role": "system", "content": "s"},)"
                 R"({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
                 R"({"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})"));
  EXPECT_EQ(lines.at(0).asked, (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(lines.at(0).texts.size(), 5u);
}

}  // namespace
}  // namespace nibble

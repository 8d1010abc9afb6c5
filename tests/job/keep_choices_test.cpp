// SPDX-License-Identifier: MIT
// Which samples of a run are kept, and what --keep names.
#include "job/keep/keep_choices.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "job/keep/kept_source.h"
#include "job/keep/openings.h"
#include "support/text.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

TEST(KeepShare, IsSpreadEvenlyAndCountsExactly) {
  for (const double share : {0.1, 0.25, 0.3, 0.5, 0.7, 0.999999, 1.0}) {
    const KeepShare s(share);
    uint64_t kept = 0;
    for (uint64_t at = 0; at < 2000; ++at) {
      EXPECT_EQ(s.kept_before(at), kept);
      kept += s.kept(at);
    }
    EXPECT_EQ(kept, uint64_t(share * 2000 + 1e-6)) << share;
    // No stretch has more of either than the bounds that memory is planned with.
    for (const uint64_t n : {1, 3, 8}) {
      uint64_t most = 0, taught = 0;
      for (uint64_t at = 0; at < 3000; ++at) {
        const uint64_t k = s.kept_before(at + n) - s.kept_before(at);
        most = std::max(most, k), taught = std::max(taught, n - k);
      }
      EXPECT_LE(most, uint64_t(s.most_kept(int64_t(n)))) << share;
      EXPECT_LE(taught, uint64_t(s.most_taught(int64_t(n)))) << share;
    }
  }
  const KeepShare third(1.0 / 3);
  const uint64_t late = uint64_t(1) << 52;
  EXPECT_EQ(third.kept_before(late + 6000000) - third.kept_before(late), 6 * 333333u);
}

// Shares are counted in millionths: one of them is the smallest, all but one the largest.
TEST(KeepChoicesTest, TheSmallestShareIsAMillionth) {
  KeepChoices c;
  c.sources = {"kept.txt"};
  const auto refused = [&](double share) {
    c.share = share;
    try {
      c.check(/*teaches=*/true);
      return false;
    } catch (const UsageError&) {
      return true;
    }
  };
  EXPECT_FALSE(refused(1e-6));
  EXPECT_FALSE(refused(1 - 1e-6));
  EXPECT_TRUE(refused(9e-7));
  EXPECT_TRUE(refused(1 - 9e-7));
}

TEST(KeptSources, AreToldByEndingAndContent) {
  const TemporaryDirectory dir("kept-sources");
  const auto kind = [&](const std::string& name, const std::string& text) {
    replace_file(dir.path() / name, text);
    return kept_source(dir.file(name)).kind;
  };
  EXPECT_EQ(kind("a.txt", "x"), KeptKind::text);
  EXPECT_EQ(kind("a.tsv", "x\ty"), KeptKind::conversations);
  EXPECT_EQ(kind("a.json", "{}"), KeptKind::prompts);
  EXPECT_EQ(kind("a.jsonl", "\n{\"text\": \"x\"}\n"), KeptKind::text);
  EXPECT_EQ(kind("a.jsonl", "{\"prompt\": \"x\"}\n"), KeptKind::prompts);
  EXPECT_EQ(kind("a.jsonl", "{\"prompt\": \"x\", \"response\": \"y\"}\n"), KeptKind::conversations);
  EXPECT_EQ(kind("a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n"),
            KeptKind::prompts);
  EXPECT_EQ(kept_source("self:50000").tokens, 50000);
  for (const char* bad : {"self:", "self:0", "self:-3", "self:1e5", "self:7 ", "x.doc", "x"}) {
    EXPECT_THROW(kept_source(bad), UsageError) << bad;
  }
  EXPECT_THROW(kind("a.jsonl", "\n\n"), FormatError);
  EXPECT_THROW(kind("a.jsonl", "{\"question\": 1}\n"), FormatError);
}

TEST(KeptSources, PromptsAreReadStrictly) {
  const TemporaryDirectory dir("kept-prompts");
  const auto prompts = [&](const std::string& text) {
    replace_file(dir.path() / "p.jsonl", text);
    return kept_prompts(kept_source(dir.file("p.jsonl")));
  };
  const auto two = prompts(
      "{\"prompt\": \"x\", \"system\": \"s\"}\n{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": "
      "\"c\"}]}\n");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].size(), 2u);
  EXPECT_EQ(two[0][0].role, Role::system);
  EXPECT_EQ(two[1].back().content, "c");
  const auto wrong = [&](const std::string& second) -> std::string {
    try {
      prompts("{\"prompt\": \"x\"}\n" + second + "\n");
    } catch (const FormatError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_TRUE(contains(wrong("{\"prompt\": \"x\", \"target\": \"y\"}"), "p.jsonl:2"));
  EXPECT_EQ(wrong("{\"prompt\": \"x\", \"why\": 1}"), "");  // counted
  try {
    replace_file(dir.path() / "q.jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": \"x\", \"why\": 1}\n");
    kept_prompts(kept_source(dir.file("q.jsonl"), ExtraKeys::refuse));
    ADD_FAILURE() << "--strict-data refuses";
  } catch (const FormatError& e) {
    EXPECT_TRUE(contains(e.what(), "q.jsonl:2: \"why\"")) << e.what();
  }
  EXPECT_TRUE(contains(wrong("{\"prompt\": \" \"}"), "is empty"));
  EXPECT_TRUE(contains(wrong("{\"messages\": []}"), "is empty"));
  EXPECT_TRUE(contains(wrong("nonsense"), "not valid JSON"));
}

TEST(Openings, AreManyAndDifferent) {
  std::vector<std::string_view> all(openings().begin(), openings().end());
  EXPECT_GE(all.size(), 50u);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  EXPECT_EQ(std::count(all.begin(), all.end(), ""), 0);
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
#include "data/overlap.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "data/files.h"

namespace nibble {
namespace {

using test::TempDir;

constexpr std::string_view kProbes = R"({"name": "t", "version": 1, "probes": [
{"id": "a", "group": "identity", "messages": [{"role": "user", "content": "你是誰？"}]},
{"id": "b", "group": "retention", "messages": [{"role": "user", "content": "one two three four five"}]},
{"id": "c", "group": "retention", "messages": [{"role": "user", "content": "3+2"},
 {"role": "assistant", "content": "5"}, {"role": "user", "content": "4+4"}]}]})";

TEST(Overlap, CountsExactNormalisedAndGrams) {
  const TempDir dir;
  const auto probes = dir.write("p.json", kProbes);
  const auto train = dir.write("t.tsv", "你是誰\t我\nzero one two three four\tyes\n3+2\t5\n");
  OverlapReport r = measure_overlap({train}, probes);
  EXPECT_EQ(r.training_lines, 3);
  EXPECT_EQ(r.groups.at("all").probes, 3);
  EXPECT_EQ(r.groups.at("all").exact, 0);
  EXPECT_EQ(r.groups.at("identity").normalised, 1);
  EXPECT_EQ(r.groups.at("retention").normalised, 0);       // "c" has a second turn
  EXPECT_DOUBLE_EQ(r.groups.at("retention").grams4, 0.5);  // of "b": one of two
  EXPECT_EQ(r.found, std::vector<std::string>{"a"});
  const auto same = dir.write("s.tsv", "你是誰？\t我\n");
  r = measure_overlap({train, same}, probes);
  EXPECT_EQ(r.groups.at("identity").exact, 1);
}

TEST(Overlap, RefusesWhatIsNoProbeFile) {
  const TempDir dir;
  const auto train = dir.write("t.tsv", "a\tb\n");
  EXPECT_THROW(measure_overlap({train}, dir.write("p.json", "{}")), FormatError);
  EXPECT_THROW(measure_overlap({train}, dir.write("q.json", "nonsense")), FormatError);
}

}  // namespace
}  // namespace nibble

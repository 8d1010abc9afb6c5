// SPDX-License-Identifier: MIT
#include "mini/probes.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/file.h"
#include "data/files.h"
#include "data/overlap.h"
#include "support/paths.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;
using test::TempDir;

TEST(Probes, EnoughInEveryGroupAndLanguage) {
  const ordered_json j = ordered_json::parse(make_probes({}));
  std::map<std::string, int> groups;
  std::set<std::string> ids, prompts;
  for (const ordered_json& p : j.at("probes")) {
    ++groups[p.at("group").get<std::string>() + " " + p.at("language").get<std::string>()];
    EXPECT_TRUE(ids.insert(p.at("id")).second);
    EXPECT_TRUE(prompts.insert(p.at("messages").dump()).second);
    EXPECT_EQ(p.at("messages").back().at("role"), "user");
    EXPECT_FALSE(p.at("rules").empty());
    EXPECT_EQ(p.contains("base_rules"), p.at("group") == "identity");
  }
  EXPECT_GE(ids.size(), 600u);
  ASSERT_EQ(groups.size(), 6u);
  for (const auto& [name, n] : groups) EXPECT_GE(n, 75) << name;
}

// The shipped set was drawn before there was a rule against these; they are left out, and nothing
// is drawn in their place.
TEST(Probes, WhatTrainingSaysInOtherMarksIsLeftOut) {
  const std::string text = make_probes({"mini", 20261123, {}});
  EXPECT_EQ(text.find("「wind」的中文是什麼"), text.npos);  // a training prompt
  EXPECT_EQ(text.find("\"retention-word_back-zh-005\""), text.npos);
  EXPECT_NE(text.find("\"retention-word_back-zh-004\""), text.npos);
  EXPECT_EQ(text.find("what is \\\"desk\\\" in Chinese"), text.npos);  // a training pattern
  EXPECT_EQ(text.find("could you say what you are"), text.npos);       // with a training prefix
}

TEST(Probes, TheShippedFileIsWhatTheGrammarMakes) {
  const std::filesystem::path file = std::filesystem::path(kSourceDir) / "models/mini/probes.json";
  EXPECT_EQ(read_text_file(file), make_probes({"mini", 20261123, {}}));
}

TEST(Probes, NoneStandsInTheTrainingData) {
  const TempDir dir;
  ThreadPool pool(2);
  write_corpus(dir / "corpus", {3, 30000}, pool);
  std::vector<OverlapProbe> probes;
  const ordered_json file = ordered_json::parse(make_probes({}));
  for (const ordered_json& p : file.at("probes")) {
    OverlapProbe& to = probes.emplace_back(OverlapProbe{p.at("id"), p.at("group"), {}});
    for (const ordered_json& m : p.at("messages")) {
      if (m.at("role") == "user") to.asked.push_back(m.at("content"));
    }
  }
  IdentitySetOptions set;
  set.samples = 5000;
  const auto identity = dir.write("identity.jsonl", make_identity_set(set, false));
  const OverlapReport r = measure_overlap(
      {dir / "corpus" / "pretrain.jsonl", dir / "corpus" / "chat.jsonl", identity}, probes);
  EXPECT_EQ(r.training_lines, 45000);
  EXPECT_EQ(r.groups.at("all").exact, 0);
  EXPECT_EQ(r.groups.at("all").normalised, 0);
  EXPECT_TRUE(r.found.empty());
}

}  // namespace
}  // namespace nibble

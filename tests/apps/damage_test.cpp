// SPDX-License-Identifier: MIT
// nibble check --against and --choices, their limits, JSON and page; and that no held-out question
// stands in what is trained on.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "apps/cli_run.h"
#include "support/paths.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class Damaged : public testing::Test {
 protected:
  Damaged() {
    write_toy_directory(dir_.path() / "one");
    write_toy_directory(dir_.path() / "two");
    write_toy_weights(toy_chat_config(), dir_.path() / "two" / "model.safetensors", 2);
    std::string text;
    for (int i = 0; i < 60; ++i) text += "Line " + std::to_string(i) + " <of> 文字 & text.\n";
    replace_file(dir_.path() / "text.txt", text);
    replace_file(
        dir_.path() / "q.jsonl",
        "{\"id\":\"a\",\"question\":\"1+1=\",\"choices\":[\"2\",\"three\",\"x\"],\"answer\":0}\n"
        "{\"id\":\"b\",\"question\":\"the sky is\",\"choices\":[\" blue\",\" a\"],\"answer\":1}\n");
    replace_file(dir_.path() / "last.jsonl",
                 "{\"question\":\"the sky is\",\"answer\":\" blue\"}\n");
  }
  CliResult check(std::vector<std::string> more, const std::string& model = "two") {
    std::vector<std::string> args = {
        "check",     "--model", dir_.file(model), "--device", devices_,
        "--threads", "1",       "--force",        "--json",   dir_.file("r.json")};
    args.insert(args.end(), more.begin(), more.end());
    return cli(args);
  }
  nlohmann::json first() {
    return nlohmann::json::parse(read_text_file(dir_.path() / "r.json"))["checks"][0];
  }
  std::string file(const char* name) { return dir_.file(name); }
  std::string devices_ = "cpu";
  TemporaryDirectory dir_{"damage"};
};

TEST_F(Damaged, AgainstItselfNothingIsLost) {
  const CliResult r = check({"--text", file("text.txt"), "--against", file("one"), "--text-window",
                             "100", "--max-kl", "0", "--min-agreement", "100", "--max-loss-rise",
                             "0", "--choices", file("q.jsonl"), "--max-drop", "0"},
                            "one");
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  const auto j = first();
  EXPECT_EQ(j["divergence"], 0.0);
  EXPECT_EQ(j["agreement"], 1.0);
  EXPECT_EQ(j["loss"], j["base_loss"]);
  EXPECT_TRUE(j["moved"].empty());
  EXPECT_TRUE(contains(r.out, "KL 0.00000 +- 0.00000 nats a token, top-1 agreement 100.00 %"))
      << r.out;
  EXPECT_TRUE(contains(r.out, "0 answers changed, 0 lost, 0 won")) << r.out;
}

TEST_F(Damaged, TheLimitsOfATextAreKept) {
  const std::vector<std::string> base = {"--text",    file("text.txt"), "--against",
                                         file("one"), "--text-window",  "100"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return check(more);
  };
  CliResult r = with({});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  auto j = first();
  EXPECT_GT(j["divergence"], 0.1);
  EXPECT_LT(j["agreement"], 0.5);
  EXPECT_NEAR(j["loss_change"].get<double>(),
              j["loss"].get<double>() - j["base_loss"].get<double>(), 1e-9);
  EXPECT_EQ(j["moved"].size(), 10u);
  EXPECT_GE(j["moved"][0]["divergence"], j["moved"][9]["divergence"]);
  EXPECT_TRUE(contains(r.out, "what moved most")) << r.out;
  with({"--moved", "2"});
  EXPECT_EQ(first()["moved"].size(), 2u);
  EXPECT_FALSE(contains(with({"--moved", "0"}).out, "what moved most"));
  r = with({"--max-kl", "0.001"});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "the divergence is above 0.001")) << r.out;
  r = with({"--min-agreement", "94"});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "the agreement is below 94 %")) << r.out;
  // One of the two directions is a rise.
  const CliResult there = with({"--max-loss-rise", "0"});
  const bool rose = first()["loss_change"] > 0;
  EXPECT_EQ(there.code, rose ? 1 : 0) << there.out;
  const CliResult back = check({"--text", file("text.txt"), "--against", file("two"),
                                "--text-window", "100", "--max-loss-rise", "0"},
                               "one");
  EXPECT_EQ(back.code, rose ? 0 : 1) << back.out;
}

TEST_F(Damaged, ChoicesOfBothModels) {
  CliResult r = check({"--choices", file("q.jsonl"), "--against", file("one")});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  auto j = first();
  EXPECT_EQ(j["questions"], 2);
  ASSERT_EQ(j["results"].size(), 2u);
  EXPECT_EQ(j["results"][0]["id"], "a");
  EXPECT_EQ(j["results"][0]["log_likelihood"].size(), 3u);
  EXPECT_TRUE(j["results"][0].contains("base_best"));
  EXPECT_TRUE(j["base"]["accuracy"].contains("standard_error"));
  check({"--choices", file("q.jsonl"), "--choice-max", "1"});
  EXPECT_EQ(first()["questions"], 1);
  EXPECT_FALSE(first().contains("base"));
  r = check({"--choices", file("last.jsonl")});
  EXPECT_EQ(first()["form"], "last word");
  EXPECT_FALSE(contains(r.out, "by length")) << r.out;
}

TEST_F(Damaged, AnAccuracyThatFellTooFarFails) {
  // Questions whose answer is what one model chooses: it has them all, the other loses some.
  const auto best = [&](const std::string& model, const std::string& questions) {
    check({"--choices", questions}, model);
    std::vector<int64_t> all;
    const auto j = first();
    for (const auto& q : j["results"]) all.push_back(q["best"]);
    return all;
  };
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    lines += "{\"question\":\"q" + std::to_string(i * 37) +
             "\",\"choices\":[\" yes\",\" no\",\" so\",\" it\"],\"answer\":0}\n";
  }
  replace_file(dir_.path() / "raw.jsonl", lines);
  const auto answers = best("one", file("raw.jsonl"));
  std::string known;
  size_t at = 0;
  for (const int64_t a : answers) {
    const size_t end = lines.find('\n', at);
    known += lines.substr(at, end - at - 2) + std::to_string(a) + "}\n";
    at = end + 1;
  }
  replace_file(dir_.path() / "known.jsonl", known);
  const CliResult r =
      check({"--choices", file("known.jsonl"), "--against", file("one"), "--max-drop", "1"});
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_TRUE(contains(r.out, "more than 1 standard errors")) << r.out;
  EXPECT_EQ(first()["base"]["accuracy"]["passed"], 12);
}

// Without what a clock says.
std::string untimed(const std::string& text) {
  return std::regex_replace(text, std::regex("\\d+\\.\\d s\\b|\"seconds\": *[0-9.e-]+"), "-");
}

// Three copies of both models, and more copies than there is to do: the same report.
TEST_F(Damaged, ReplicasShareTheWork) {
  const std::vector<std::string> all = {
      "--text",    file("text.txt"),   "--text-window", "40",
      "--against", file("one"),        "--choices",     file("q.jsonl"),
      "--choices", file("last.jsonl"), "--replies"};
  const auto report = [&](const char* devices) {
    devices_ = devices;
    std::vector<std::string> more = all;
    more.insert(more.end(), {"--max-tokens", "8", "--temperature", "1.2"});
    const CliResult r = check(more);
    EXPECT_TRUE(contains(r.out, "0 lost")) << r.out << r.err;
    return untimed(r.out + read_text_file(dir_.path() / "r.json"));
  };
  const std::string one = report("cpu");
  EXPECT_TRUE(contains(one, "moved"));
  EXPECT_EQ(report("cpu,cpu,cpu"), one);
  EXPECT_EQ(report("cpu,cpu,cpu,cpu,cpu,cpu,cpu"), one);
}

TEST_F(Damaged, ThePageNeedsNothingButItself) {
  const std::string page = file("page.html");
  const CliResult r = check({"--text", file("text.txt"), "--choices", file("q.jsonl"), "--against",
                             file("one"), "--html", page});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  const std::string html = read_text_file(page);
  for (const char* part : {"text.txt", "q.jsonl", "top-1 agreement", "answers changed",
                           "what moved most", "script-src 'none'", "</html>"}) {
    EXPECT_TRUE(contains(html, part)) << part;
  }
  EXPECT_FALSE(contains(html, "http://"));
  EXPECT_FALSE(contains(html, "https://"));
  EXPECT_FALSE(contains(html, "<of>"));  // what a text says is shown as text
  EXPECT_TRUE(contains(html, "&lt;of&gt;"));
}

TEST_F(Damaged, WhatCannotBeComparedIsRefused) {
  const auto fails = [&](std::vector<std::string> more, int code, const std::string& part) {
    const CliResult r = check(more);
    EXPECT_EQ(r.code, code) << r.out << r.err;
    EXPECT_TRUE(contains(r.err, part)) << part << " in\n" << r.err;
  };
  fails({"--against", file("one")}, 2, "add --text or --choices");
  fails({"--text", file("text.txt"), "--max-kl", "1"}, 2, "--against");
  fails({"--choices", file("text.txt")}, 3, "no valid JSON");
  fails({"--choices", file("q.jsonl"), "--html", file("q.jsonl")}, 2, "is an input");
  fails({"--choices", file("q.jsonl"), "--html", file("r.json")}, 2, "are the same file");
  fails({"--text", file("text.txt"), "--against", file("none")}, 3, "none");
}

// Held out means: asked in no row that is trained on, also without punctuation and case.
TEST(HeldOut, NoQuestionOfTheProbesIsTrainedOn) {
  TemporaryDirectory dir("held-out");
  const fs::path models = fs::path(kSourceDir) / "models";
  const std::string plain = dir.file("plain.jsonl"), talks = dir.file("talks.jsonl");
  cli_ok({"data", "identity", "--seed", "1", "--size", "12000", "--identity-share", "0.5",
          "--disambiguation-share", "0.5", "--out", plain});
  cli_ok({"data", "identity", "--seed", "1", "--size", "12000", "--identity-share", "0.25",
          "--disambiguation-share", "0.3", "--conversation-share", "0.2", "--out", talks});
  const CliResult qwen =
      cli({"data", "overlap", "--train", plain, "--train", (models / "qwen/rows.jsonl").string(),
           "--probes", (models / "qwen/probes.json").string()});
  EXPECT_EQ(qwen.code, 0) << qwen.out << qwen.err;
  const CliResult mini = cli({"data", "overlap", "--train", talks, "--probes",
                              (models / "mini/conversations.json").string()});
  EXPECT_EQ(mini.code, 0) << mini.out << mini.err;
}

}  // namespace
}  // namespace nibble::test

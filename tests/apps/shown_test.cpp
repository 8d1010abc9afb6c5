// SPDX-License-Identifier: MIT
// What a training run says and writes down: true values, what is odd, and how it ended.
#include "apps/options/other_names.h"
#include "apps/terminal/step_line.h"
#include "apps/train_support.h"
#include "core/text/columns.h"
#include "runtime/device.h"

namespace nibble::test {
namespace {

using Shown = TrainingTest;
using nlohmann::json;

json record(const std::filesystem::path& run) {
  return json::parse(read_text_file(run / "run.json"));
}
std::string joined_lines(const json& list) {
  std::string all;
  for (const auto& text : list) all += text.get<std::string>() + "\n";
  return all;
}

TEST(StepText, FitsEveryWidth) {
  StepLine l;
  l.steps = 500;
  l.at.step = 120;
  l.at.loss = 0.0312;
  l.at.lr = 2e-4;
  l.at.tokens_per_second = 1234;
  l.at.rss_bytes = 512 << 20;
  l.seconds_left = 125;
  l.gate_step = 100;
  l.gate = {{"identity", 98}, {"身分", 95}};
  EXPECT_EQ(step_text(l, 199),
            "step 120/500  loss 0.0312  lr 2.00e-04  1234 tok/s  512.00 MiB  0:02:05 left  gate "
            "100: identity 98 %, 身分 95 %");
  for (size_t width = 1; width < 200; ++width) {
    EXPECT_LE(columns_of(step_text(l, width)), width);
  }
  EXPECT_TRUE(contains(step_text(l, 79), "1234 tok/s") && contains(step_text(l, 79), "left"));
  EXPECT_TRUE(contains(step_text(l, 39), "120/500  loss 0.0312")) << step_text(l, 39);
}

TEST_F(Shown, ARunThatRanAwayIsCollapsed) {
  const CliResult r = train({{"--lr", "30"}, {"--steps", "14"}, {"--grad-clip", "0"}});
  EXPECT_EQ(r.code, 1) << r.out << r.err;
  EXPECT_TRUE(contains(r.out, "nothing was exported") && contains(r.out, "--lr 30")) << r.out;
  const json j = record(dir_.path() / "runs/run");
  EXPECT_EQ(j["state"], "collapsed");
  EXPECT_EQ(j["exit_code"], 1);
  EXPECT_EQ(j["collapses"].size(), 1U);
  EXPECT_EQ(train({{"--lr", "30"},
                   {"--steps", "12"},
                   {"--grad-clip", "0"},
                   {"--run-name", "on"},
                   {"--on-collapse", "ignore"}})
                .code,
            0);
}

TEST_F(Shown, TrueValuesGradientAndSelfTestAreRecorded) {
  const auto run =
      trained({{"--steps", "12"}, {"--self-test", "true"}, {"--test-max-tokens", "4"}});
  const auto lines = read_jsonl(run / "metrics.jsonl");
  double lowest = 1e9, largest = 0;
  for (const auto& l : lines) {
    lowest = std::min(lowest, l["loss"].get<double>());
    largest = std::max(largest, l["grad_norm"].get<double>());
  }
  const json j = record(run);
  EXPECT_EQ(j["metrics"]["loss"], lines.back()["loss"]);
  EXPECT_EQ(j["metrics"]["lowest_loss"]["loss"], lowest);
  EXPECT_EQ(j["metrics"]["largest_grad_norm"]["norm"], largest);
  EXPECT_EQ(j["self_test"]["passed"], true);
  const std::string last = fmt::format("{:.4f}", lines.back()["loss"].get<double>());
  for (const char* action : {"list", "show"}) {
    const std::string out = cli_ok({"runs", action, "--runs-dir", file("runs")});
    EXPECT_TRUE(contains(out, last)) << out;
  }
  const std::string log = cli_ok({"runs", "export", "--markdown", "--runs-dir", file("runs")});
  EXPECT_TRUE(contains(log, "-\\> " + last) && contains(log, "smoothed over about 20")) << log;
  EXPECT_TRUE(contains(log, "Self-test's reply")) << log;
  const std::string page = read_text_file(run / "report.html");
  EXPECT_TRUE(contains(page, "Gradient norm") && contains(page, "Self-test of the exported model"));
}

TEST_F(Shown, WhatIsOddIsSaidAndRecorded) {
  const std::string odd = write("odd.tsv", "hi\tyes\nhi\tno\nwho are you\tnibble and more\n");
  const auto run = trained({{"--train-data", odd}, {"--eval-data", odd}, {"--seq-len", "24"}});
  const std::string said = joined_lines(record(run)["warnings"]);
  EXPECT_TRUE(contains(said, "1 prompt with more than one answer (2 samples)")) << said;
  EXPECT_TRUE(contains(said, "every sample stands in the training data")) << said;
  const auto cut = trained({{"--seq-len", "12"}, {"--truncate", "true"}});
  EXPECT_TRUE(contains(joined_lines(record(cut)["warnings"]), "would hold them all"));
  const auto plain = trained({{"--device", "cpu"}});  // nothing to fall back from
  EXPECT_EQ(record(plain)["warnings"].size(), 0U) << record(plain)["warnings"];
  const auto none = trained({{"--resume", "true"}, {"--checkpoint-dir", file("nowhere")}});
  EXPECT_TRUE(contains(joined_lines(record(none)["warnings"]), "begins at step 1"));
  EXPECT_EQ(fallback_text(Device::automatic, Device::cpu, "no driver; use --device cpu"),
            "on the CPU, since no GPU can be used: no driver; use --device cpu");
  EXPECT_EQ(fallback_text(Device::cpu, Device::cpu, "no driver"), "");
}

TEST_F(Shown, AResumedRunContinuesCurveAndRecord) {
  const Options saved = {{"--checkpoint-dir", file("saved")}, {"--save-every-steps", "3"}};
  Options more = saved;
  more["--steps"] = "3";
  more["--lr-schedule"] = "constant";
  const auto first = trained(more);
  more["--steps"] = "6";
  more["--resume"] = "true";
  const auto second = trained(more);
  const auto whole = trained({{"--steps", "6"}});
  const auto a = read_jsonl(second / "metrics.jsonl"), b = read_jsonl(whole / "metrics.jsonl");
  ASSERT_EQ(a.size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(a[i]["step"], b[i]["step"]);
    EXPECT_EQ(a[i]["loss"], b[i]["loss"]);
    EXPECT_NEAR(a[i]["smoothed_loss"].get<double>(), b[i]["smoothed_loss"].get<double>(), 1e-9);
  }
  const json j = record(second);
  EXPECT_EQ(j["continues"]["run"], first.filename().string());
  EXPECT_EQ(j["metrics"]["first_loss"], b[0]["loss"]);
  EXPECT_EQ(j["metrics"]["tokens"], record(whole)["metrics"]["tokens"]);
}

TEST_F(Shown, ErrorsBeforeTheFirstStepLeaveNoFolder) {
  trained({{"--checkpoint-dir", file("saved")}});
  refused({{"--checkpoint-dir", file("saved")}, {"--run-name", "second"}}, 2, "--resume");
  EXPECT_FALSE(std::filesystem::exists(file("runs/second")));
}

TEST_F(Shown, ARunTheGuardEndedSaysSo) {
  std::vector<std::string> words = {"guard", "--ram-limit-gb", "0.001", "--poll-secs",
                                    "0.3",   "--over-secs",    "0.6",   "--grace-secs",
                                    "0",     kNibblePath};
  for (const std::string& w : train_arguments({{"--steps", "1000000"}})) words.push_back(w);
  Child guard(dir_.path(), words);
  EXPECT_EQ(guard.wait().code, 124);
  const json j = record(dir_.path() / "runs/run");
  EXPECT_EQ(j["state"], "interrupted");
  EXPECT_EQ(j["exit_code"], 124);
  EXPECT_TRUE(contains(j["message"].get<std::string>(), "nibble guard ended it")) << j["message"];
}

TEST_F(Shown, OtherProgramsNamesSuggestOurs) {
  cli_fails({"train", "--learning-rate", "1"}, 2, "here it is --lr");
  cli_fails({"train", "--max_seq_length", "1"}, 2, "here it is --seq-len");
  cli_fails({"train", "--train_data", "x"}, 2, "it is written --train-data");
  cli_fails({"generate", "--learning-rate", "1"}, 2, "it belongs to train");
  const std::string all = cli_ok({"train", "--help"}) + cli_ok({"generate", "--help"});
  for (const OtherName& n : other_names()) {
    EXPECT_TRUE(n.ours.empty() || contains(all, std::string(n.ours))) << n.flag << " " << n.ours;
  }
}

TEST_F(Shown, ShortOptionsAndAModelWithoutAFlag) {
  const std::string usual =
      cli_ok({"generate", "--model", model(), "--prompt", "hi", "--max-tokens", "3"});
  EXPECT_EQ(cli_ok({"generate", model(), "-p", "hi", "-n", "3"}), usual);
  EXPECT_EQ(cli_ok({"generate", "-m", model(), "-p", "hi", "-n", "3"}), usual);
  cli_fails({"generate", model(), "--model", model()}, 2, "are the same option, given twice");
  const std::string help = cli_ok({"train", "--help"});
  EXPECT_LT(help.find("Most used:"), help.find("Data:"));
  EXPECT_TRUE(cli_ok({"--help"}).starts_with("nibble: trains "));
}

TEST_F(Shown, FilesThatAreNoModelAreCalledByTheirName) {
  cli_fails({"generate", pairs(), "-p", "x"}, 3, "a TSV file, which is data");
  cli_fails({"generate", write("a.csv", "a,b\n"), "-p", "x"}, 3, "a CSV file");
  cli_fails({"generate", write("m.safetensors", "version https://git-lfs.github.com"), "-p", "x"},
            3, "a pointer of Git LFS");
}

TEST_F(Shown, IdsWithoutATokenizerAreTheReply) {
  std::filesystem::copy(model(), file("bare"));
  std::filesystem::remove(file("bare/tokenizer.json"));
  const std::string out = cli_ok({"generate", file("bare"), "--input-ids", "1,2,3", "-n", "3"});
  EXPECT_EQ(std::ranges::count(out, ','), 2) << out;
}

TEST_F(Shown, SmokeWithNothingLeftSaysSo) {
  const std::vector<std::string> words = {
      "smoke",      "--in-features",     "64", "--out-features",   "64",          "--vocabulary",
      "64",         "--threads",         "1",  "--checkpoint-dir", file("saved"), "--runs-dir",
      file("runs"), "--steps-per-epoch", "2"};
  cli_ok(words);
  std::vector<std::string> again = words;
  again.push_back("--resume");
  const std::string out = cli_ok(again);
  EXPECT_TRUE(contains(out, "nothing was trained: the checkpoint is at step 2 of 2")) << out;
  EXPECT_FALSE(contains(out, "loss")) << out;
}

TEST_F(Shown, LineageFollowsThePathThatWasRead) {
  const std::string in = dat();
  trained({{"--model", in}, {"--lr", "0"}});  // writes the bytes it read
  const auto other = trained({{"--model", in}});
  const std::string out =
      cli_ok({"runs", "lineage", other.filename().string(), "--runs-dir", file("runs"), "--json"});
  EXPECT_EQ(json::parse(out)["ancestors"].size(), 0U) << out;
}

}  // namespace
}  // namespace nibble::test

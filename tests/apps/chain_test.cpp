// SPDX-License-Identifier: MIT
// Chains of stages: each one's output is the next one's input; what is done stays done.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "apps/train_support.h"
#include "runlog/run_folder.h"
#include "runlog/run_record.h"
#include "runlog/run_status.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ChainTest : public TrainingTest {
 protected:
  // The keys above the stages.
  std::string common(const std::string& more = "") const {
    return "command = \"train\"\nmodel = \"" + dat() + "\"\ntrain-data = \"" + pairs() +
           "\"\nsteps = 1\nlr = 1e-3\nseq-len = 64\nthreads = 1\nself-test = false\nruns-dir = \"" +
           file("runs") + "\"\n" + more;
  }
  static constexpr const char* kTwo =
      "[[stage]]\nname = \"warm\"\n[[stage]]\nname = \"gentle\"\nlr = 1e-4\nsteps = 2\n";

  CliResult chain(const std::string& toml, std::vector<std::string> more = {}) {
    write("both.toml", toml);
    std::vector<std::string> args = {"train", "--run-config", file("both.toml")};
    args.insert(args.end(), more.begin(), more.end());
    return cli(args);
  }
  void refuses(const std::string& toml, const std::string& part,
               const std::vector<std::string>& more = {}) {
    const CliResult r = chain(toml, more);
    EXPECT_EQ(r.code, 2) << r.err;
    EXPECT_TRUE(contains(r.err, part)) << part << " in\n" << r.err;
    EXPECT_FALSE(fs::exists(file("runs"))) << "something was started";
  }
  json record() const { return json::parse(read_text_file(file("runs/both/chain.json"))); }
  RunRecord run(const std::string& name) const { return read_record(file("runs/" + name)); }
  size_t runs() const { return list_runs(file("runs")).size(); }
};

TEST_F(ChainTest, EachStageStartsFromTheOneBefore) {
  const CliResult r = chain(common() + kTwo);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "chain both: 2 stages done")) << r.out;
  const RunRecord one = run("both-1-warm"), two = run("both-2-gentle");
  EXPECT_EQ(one.status.last.step, 1);
  EXPECT_EQ(two.status.last.step, 2);
  EXPECT_EQ(two.setting("lr"), "0.0001");
  EXPECT_EQ(one.setting("lr"), "0.001");
  ASSERT_EQ(two.with_role("weights").size(), 1u);
  EXPECT_EQ(two.with_role("weights")[0]->path, file("runs/both-1-warm/model.dat"));
  EXPECT_EQ(two.with_role("weights")[0]->sha256, one.with_role("output")[0]->sha256);
  EXPECT_FALSE(two.with_role("weights")[0]->sha256.empty());
  ASSERT_TRUE(two.chain);
  EXPECT_EQ(two.chain->chain, "both");
  EXPECT_EQ(two.chain->stage, 2);
  EXPECT_EQ(two.chain->stages, 2);
  EXPECT_EQ(two.chain->stage_name, "gentle");

  const json j = record();
  EXPECT_EQ(j["state"], "finished");
  EXPECT_EQ(j["stages"][0]["state"], "finished");
  EXPECT_EQ(j["stages"][1]["runs"], json{"both-2-gentle"});
  EXPECT_EQ(read_text_file(file("runs/both/chain.toml")), common() + kTwo);
  const std::string shown = cli_ok({"runs", "show", "both", "--runs-dir", file("runs")});
  EXPECT_TRUE(contains(shown, "stage       gentle (train): finished, runs both-2-gentle, made "))
      << shown;
  EXPECT_EQ(json::parse(cli_ok({"runs", "show", "both", "--json", "--runs-dir", file("runs")})), j);
  EXPECT_EQ(cli_ok({"runs", "lineage", "both-2-gentle", "--runs-dir", file("runs")}),
            dat() + "\n  both-1-warm\n    both-2-gentle (this run)\n");
  // A run by itself says nothing of a chain.
  EXPECT_FALSE(read_record(trained({{"--export", "false"}})).chain);
}

// What a power cut may leave of the record: the chain goes on, and the broken file is kept.
TEST_F(ChainTest, ABrokenRecordIsSetAside) {
  ASSERT_EQ(chain(common() + kTwo).code, 0);
  const std::string output = record()["stages"][1]["output"];
  const std::string trained = file_bytes(output);
  for (const char* broken : {"", "{\"chain\": "}) {
    replace_file(file("runs/both/chain.json"), broken);
    testing::internal::CaptureStderr();
    const CliResult r = chain(common() + kTwo);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(contains(said, "chain.json.damaged")) << said;
    EXPECT_EQ(read_text_file(file("runs/both/chain.json.damaged")), broken);
    EXPECT_EQ(record()["state"], "finished");
    const std::string again = record()["stages"][1]["output"];
    EXPECT_TRUE(file_bytes(again) == trained);
  }
}

TEST_F(ChainTest, ItsFolderIsPrunedWithTheLastOfItsRuns) {
  ASSERT_EQ(chain(common() + kTwo).code, 0);
  const auto prune = [&](std::vector<std::string> which) {
    which.insert(which.begin(), {"runs", "prune", "--runs-dir", file("runs")});
    return cli_ok(which);
  };
  const std::string half = prune({"both-1-warm", "--yes"});
  EXPECT_TRUE(contains(half, "1 run moved to")) << half;
  EXPECT_TRUE(fs::exists(file("runs/both/chain.json"))) << "one of its runs is still there";

  const std::string would = prune({"both-2-gentle"});
  EXPECT_TRUE(
      contains(would, "both-2-gentle\nboth (a chain without runs)\n1 run and 1 chain would"))
      << would;
  EXPECT_TRUE(fs::exists(file("runs/both"))) << "not without --yes";
  // A chain that is running will make runs.
  const std::string finished = read_text_file(file("runs/both/chain.json"));
  {
    RunStatus own;
    set_own_process(own);
    json running = record();
    running["state"] = "running";
    running["pid"] = own.pid;
    running["pid_start"] = own.pid_start;
    running["host"] = own.host;
    replace_file(file("runs/both/chain.json"), running.dump());
    EXPECT_FALSE(contains(prune({"both-2-gentle"}), "chain"));
    replace_file(file("runs/both/chain.json"), finished);
  }
  const json moved = json::parse(prune({"--keep", "0", "--yes", "--json"}));
  EXPECT_EQ(moved["chains"], json{"both"});
  EXPECT_FALSE(fs::exists(file("runs/both")));
  EXPECT_EQ(read_text_file(moved["trash"].get<std::string>() + "/both/chain.json"), finished);
  const std::string log = read_text_file(file("runs/prune.jsonl"));
  EXPECT_TRUE(contains(log, "\"chain\":\"both\"")) << log;
  for (const auto& entry : fs::directory_iterator(file("runs"))) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == ".trash" || name == "prune.jsonl") << name << " is left behind";
  }
  // The same chain again: nothing of it is there, so it is done anew.
  ASSERT_EQ(chain(common() + kTwo).code, 0);
  EXPECT_EQ(runs(), 2u);
}

TEST_F(ChainTest, WhatIsDoneIsNotRunAgain) {
  ASSERT_EQ(chain(common() + kTwo).code, 0);
  ASSERT_EQ(chain(common() + kTwo).code, 0);
  EXPECT_EQ(runs(), 2u);
  // Another rate in the second stage: the first one stays.
  const std::string other =
      "[[stage]]\nname = \"warm\"\n[[stage]]\nname = \"gentle\"\nlr = 1e-5\nsteps = 2\n";
  ASSERT_EQ(chain(common() + other).code, 0);
  EXPECT_EQ(runs(), 3u);
  EXPECT_EQ(run("both-2-gentle-2").setting("lr"), "1e-05");
  EXPECT_EQ(record()["stages"][1]["runs"], (json{"both-2-gentle", "both-2-gentle-2"}));
  // A file that changed: everything from there on.
  const fs::path output = file("runs/both-1-warm/model.dat");
  std::string bytes = file_bytes(output);
  bytes.back() = char(bytes.back() ^ 1);
  replace_file(output, bytes);
  ASSERT_EQ(chain(common() + other).code, 0);
  EXPECT_EQ(runs(), 5u);
  EXPECT_EQ(run("both-2-gentle-3").with_role("weights")[0]->path,
            file("runs/both-1-warm-2/model.dat"));
}

TEST_F(ChainTest, StopsAtTheFirstThatFails) {
  const std::string three =
      "[[stage]]\nname = \"a\"\n"
      "[[stage]]\nname = \"b\"\nself-test = true\ntest-expect = [\"never said\"]\n"
      "[[stage]]\nname = \"c\"\n";
  const CliResult r = chain(common() + three);
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(contains(r.out, "chain both: stage 2 (b) failed with exit code 1")) << r.out;
  EXPECT_EQ(runs(), 2u);
  EXPECT_EQ(record()["state"], "failed");
  EXPECT_EQ(record()["stages"][1]["state"], "failed");
  EXPECT_EQ(record()["stages"][2]["state"], "waiting");
  EXPECT_EQ(run("both-2-b").exit_code, 1);

  const CliResult missing = chain(
      common() + "[[stage]]\nname = \"a\"\n[[stage]]\nname = \"b\"\ntrain-data = \"none.tsv\"\n");
  EXPECT_EQ(missing.code, 3);
  EXPECT_TRUE(contains(missing.err, "both.toml: stage 2 (b): ")) << missing.err;
  EXPECT_EQ(record()["stages"][1]["exit_code"], 3);
  // The first was done, and the second had no folder yet when it failed.
  EXPECT_EQ(runs(), 2u);
  EXPECT_EQ(chain(common() + "[[stage]]\nname = \"a\"\n[[stage]]\nname = \"b\"\n").code, 0);
}

TEST_F(ChainTest, PretrainingAndThenTraining) {
  const std::string toml = "train-data = \"" + write("text.txt", "hello\n\nyes and no\n\n") +
                           "\"\nsteps = 1\nlr = 1e-3\nseq-len = 64\nthreads = 1\n"
                           "self-test = false\nrun-name = \"mixed\"\nruns-dir = \"" +
                           file("runs") + "\"\nconfig = \"" + model() + "/config.json\"\n" +
                           "[[stage]]\nname = \"dense\"\nrecipe = \"bf16\"\n"
                           "[[stage]]\nname = \"packed\"\n"
                           "[[stage]]\nname = \"tune\"\ncommand = \"train\"\ntrain-data = \"" +
                           pairs() + "\"\n";
  write("mixed.toml", toml);
  const CliResult r = cli(
      {"pretrain", "--run-config", file("mixed.toml"), "--output", file("final"), "--seed", "5"});
  ASSERT_EQ(r.code, 0) << r.err << r.out;
  const RunRecord dense = run("mixed-1-dense"), packed = run("mixed-2-packed"),
                  tune = run("mixed-3-tune");
  EXPECT_EQ(dense.status.command, "pretrain");
  EXPECT_EQ(packed.status.command, "pretrain");
  EXPECT_EQ(tune.status.command, "train");
  EXPECT_EQ(packed.with_role("weights")[0]->sha256, dense.with_role("output")[0]->sha256);
  EXPECT_EQ(tune.with_role("weights")[0]->sha256, packed.with_role("output")[0]->sha256);
  for (const RunRecord& run : {dense, packed, tune}) EXPECT_EQ(run.setting("seed"), "5");
  EXPECT_TRUE(fs::exists(file("final/model.safetensors")));  // the last stage's alone
  EXPECT_EQ(tune.status.output, file("final"));
}

TEST_F(ChainTest, MistakesNameStageAndKey) {
  refuses(common("learning-rate = 1\n") + kTwo, "both.toml: unknown option --learning-rate");
  refuses(common() + "[[stage]]\n[[stage]]\nname = \"b\"\nlearning-rate = 1\n",
          "both.toml: stage 2 (b): unknown option --learning-rate");
  refuses(common() + "[[stage]]\nlr = \"fast\"\n", "both.toml: stage 1 (stage1): lr: 'fast'");
  refuses(common() + "[[stage]]\n[[stage]]\nmodel = \"x\"\n",
          "stage 2 (stage2): model: not in a chain: the model of stage 2 is the output of stage 1");
  refuses(common() + "[[stage]]\nexport = false\n[[stage]]\n", "stage 1 (stage1): export: false");
  refuses(common() + "[[stage]]\nresume = true\n", "stage 1 (stage1): resume: not in a chain");
  refuses(common() + "[[stage]]\nruns-dir = \"x\"\n", "write it above");
  refuses(common() + "[[stage]]\ncommand = \"chat\"\n", "'chat' cannot be a stage");
  refuses(common() + "[[stage]]\nname = \"a\"\n[[stage]]\nname = \"a\"\n", "two stages");
  refuses(common() + kTwo, "without --resume", {"--resume"});
  refuses(common() + kTwo, "unknown option --what", {"--what", "1"});
  cli_fails({"chat", "--run-config", write("c.toml", "[[stage]]\n")}, 2, "for train and pretrain");
}

TEST_F(ChainTest, TheCommandLineWins) {
  const CliResult shown = chain(common() + kTwo, {"--lr", "0.25", "--print-config"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_TRUE(contains(shown.out, "# stage 1: warm\ncommand = \"train\"\n")) << shown.out;
  EXPECT_FALSE(contains(shown.out, "lr = 0.0001\n"));
  EXPECT_FALSE(fs::exists(file("runs")));
  const CliResult named =
      chain(common() + kTwo, {"--run-name", "mine", "--steps", "1", "--output", file("out.dat")});
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(run("mine-2-gentle").status.last.step, 1);
  EXPECT_EQ(run("mine-2-gentle").status.output, file("out.dat"));
  EXPECT_EQ(run("mine-1-warm").status.output, file("runs/mine-1-warm/model.dat"));
  // The folder of something else is not a chain's.
  trained({{"--export", "false"}});
  EXPECT_EQ(chain(common() + kTwo, {"--run-name", "run1"}).code, 2);
}

// An interrupt: the step is finished and saved, and the same command goes on from there.
TEST_F(ChainTest, GoesOnAfterAnInterrupt) {
  const std::string toml =
      common() + "[[stage]]\nname = \"a\"\n[[stage]]\nname = \"b\"\nsteps = 2000\n";
  write("both.toml", toml);
  Child child(dir_.path(), {"train", "--run-config", file("both.toml")});
  const fs::path metrics = file("runs/both-2-b/metrics.jsonl");
  while (child.running()) {
    if (fs::exists(metrics) && fs::file_size(metrics) > 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  child.signal(SIGINT);
  const CliResult r = child.wait();
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_TRUE(contains(r.out, "stage 2 (b) was interrupted; the same command goes on")) << r.out;
  EXPECT_EQ(record()["state"], "interrupted");
  const int64_t step = run("both-2-b").status.last.step;
  ASSERT_GT(step, 0);
  ASSERT_LT(step, 2000);
  const CliResult on = chain(toml);
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_EQ(record()["state"], "finished");
  EXPECT_EQ(runs(), 3u);  // the first stage was done
  EXPECT_EQ(read_jsonl(file("runs/both-2-b-2/metrics.jsonl")).front()["step"], 1);
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// nibble train: checkpoints, --resume, and Ctrl+C.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/train_support.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(directory, ec)) {
    names.push_back(e.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string checkpoint(int step) {
  return "checkpoint-0000000" + std::to_string(step) + ".safetensors";
}

class TrainResume : public TrainingTest {
 protected:
  std::string saved() const { return file("saved"); }
  // A run that stops after `steps`, with a checkpoint there.
  void begin(const std::string& steps, Options given = {}) {
    given["--steps"] = steps;
    given["--checkpoint-dir"] = saved();
    given["--save-every-steps"] = "1000";  // only at the end
    given["--export"] = "false";
    trained(given);
  }
  std::string resumed(Options given) {
    given["--checkpoint-dir"] = saved();
    given["--resume"] = "true";
    return exported(given);
  }
};

TEST_F(TrainResume, TenAndTenIsTwenty) {
  for (const Options& how : std::vector<Options>{
           {{"--sample-mode", "random"}},
           {{"--accumulate", "2"}, {"--compute-dtype", "fp16"}, {"--weight-decay", "0.1"}},
           {{"--memory-mode", "remake"}, {"--optimizer-state-mode", "nvfp4"}},
           {{"--model", dat()}, {"--memory-mode", "release"}, {"--untie", "true"}}}) {
    SCOPED_TRACE(how.begin()->first);
    fs::remove_all(saved());
    begin("10", how);
    Options twenty = how;
    twenty["--steps"] = "20";
    const std::string second = resumed(twenty);
    const auto lines =
        read_jsonl(dir_.path() / "runs" / ("run" + std::to_string(runs_)) / "metrics.jsonl");
    ASSERT_EQ(lines.size(), 20u);  // with those of the run it continues
    EXPECT_EQ(lines[10]["step"], 11);
    EXPECT_TRUE(second == exported(twenty));
  }
}

TEST_F(TrainResume, SaveEveryAndKeep) {
  const Options four = {{"--steps", "4"}, {"--checkpoint-dir", saved()}, {"--export", "false"}};
  const auto kept = [&](Options more) {
    fs::remove_all(saved());
    more.insert(four.begin(), four.end());
    trained(more);
    return names_in(saved());
  };
  EXPECT_TRUE(kept({}).empty());
  EXPECT_EQ(kept({{"--save-every-steps", "1"}}),
            (std::vector<std::string>{checkpoint(3), checkpoint(4)}));
  EXPECT_EQ(kept({{"--save-every-steps", "3"}}),
            (std::vector<std::string>{checkpoint(3), checkpoint(4)}));
  EXPECT_EQ(kept({{"--save-every-steps", "1"}, {"--keep-checkpoints", "1"}}),
            std::vector<std::string>{checkpoint(4)});
  EXPECT_EQ(kept({{"--save-every-steps", "1"}, {"--keep-checkpoints", "0"}}).size(), 4u);
  EXPECT_EQ(kept({{"--save-every-minutes", "1e-9"}}),
            (std::vector<std::string>{checkpoint(2), checkpoint(3)}));
  // Without a directory of their own they lie in the run's folder.
  const fs::path run = trained({{"--save-every-steps", "2"}, {"--export", "false"}});
  EXPECT_EQ(names_in(run / "checkpoints"), std::vector<std::string>{checkpoint(2)});
  const auto status = nlohmann::json::parse(read_text_file(run / "status.json"));
  EXPECT_EQ(status["checkpoint"], (run / "checkpoints" / checkpoint(2)).string());
}

TEST_F(TrainResume, NothingThereIsABeginning) { EXPECT_TRUE(resumed({}) == exported({})); }

TEST_F(TrainResume, AFinishedRunExportsAgain) {
  begin("2");
  EXPECT_TRUE(resumed({{"--steps", "2"}}) == exported({{"--steps", "2"}}));
  refused({{"--steps", "1"}, {"--checkpoint-dir", saved()}, {"--resume", "true"}}, 2,
          "the checkpoint is at step 2, beyond the 1 steps of this run");
}

TEST_F(TrainResume, WhatMayChangeBetweenTheTwo) {
  begin("2");
  const std::string usual = exported({{"--steps", "4"}});
  EXPECT_TRUE(resumed({{"--steps", "4"},
                       {"--threads", "2"},
                       {"--recompute", "on"},
                       {"--step-chunk-rows", "5"},
                       {"--log-every", "1"},
                       {"--eval-data", pairs()}}) == usual);
}

TEST_F(TrainResume, AnotherRunIsRefusedWithEveryDifference) {
  begin("2");
  const auto differs = [&](const Options& given, const std::string& part) {
    Options more = {{"--steps", "4"}, {"--checkpoint-dir", saved()}, {"--resume", "true"}};
    more.insert(given.begin(), given.end());
    refused(more, 2, part);
    EXPECT_EQ(names_in(saved()), std::vector<std::string>{checkpoint(2)});
  };
  differs({{"--lr", "2e-3"}}, "lr: the checkpoint has 0.001, this run 0.002");
  differs({{"--seed", "1"}}, "seed: ");
  differs({{"--batch-size", "2"}}, "batch-size: the checkpoint has 1, this run 2");
  differs({{"--accumulate", "2"}}, "accumulate: the checkpoint has 1, this run 2");
  differs({{"--sample-mode", "random"}}, "sample-mode: ");
  differs({{"--train-data", write("other.tsv", "a\tb\n")}}, "training data: ");
  differs({{"--model", dat()}}, "input file: ");
  differs({{"--optimizer-state-mode", "fp32"}}, "optimizer-state-mode: the checkpoint has int8");
  differs({{"--memory-mode", "release"}},
          "memory-mode releases gradients: the checkpoint has no, this run yes");
  differs({{"--lr-schedule", "linear"}}, "lr-schedule: ");
  differs({{"--master-rounding", "nearest"}},
          "master-rounding: the checkpoint has stochastic, this run nearest");
  differs({{"--lr-scale", "norm=2"}}, "lr-scale: the checkpoint has nothing, this run norm=2");
  // Both of two.
  differs({{"--lr", "2e-3"}, {"--seed", "1"}}, "this run 0.002");
  differs({{"--lr", "2e-3"}, {"--seed", "1"}}, "seed: the checkpoint has 20260226, this run 1");
}

TEST_F(TrainResume, WithoutResumeNothingIsMixedUp) {
  begin("2");
  refused({{"--checkpoint-dir", saved()}}, 2,
          "holds checkpoints of an earlier run: go on with --resume, or name another");
  refused({{"--resume", "true"}}, 2, "--resume needs --checkpoint-dir");
  EXPECT_EQ(names_in(saved()), std::vector<std::string>{checkpoint(2)});
}

TEST_F(TrainResume, DamagedCheckpoints) {
  begin("2");
  const fs::path newest = fs::path(saved()) / checkpoint(2);
  const std::string good = file_bytes(newest);
  const Options go_on = {{"--steps", "4"}, {"--checkpoint-dir", saved()}, {"--resume", "true"}};
  const auto damaged = [&](const std::string& bytes, const std::string& part) {
    replace_file(newest, bytes);
    refused(go_on, 3, part);
    EXPECT_TRUE(file_bytes(newest) == bytes) << "left as it is";
  };
  damaged("", newest.string());
  damaged(good.substr(0, good.size() / 2), newest.string());
  damaged(std::string(4096, 'x'), newest.string());
  damaged(file_bytes(fs::path(model()) / "model.safetensors"), "is not a checkpoint of nibble");
  replace_file(newest, good);
  EXPECT_EQ(train(go_on).code, 0);
}

// A disk that fills up while a checkpoint is written: an error, the older one is whole, and with
// room again the run goes on from there.
TEST_F(TrainResume, FullDisk) {
  begin("2");
  const auto size = fs::file_size(fs::path(saved()) / checkpoint(2));
  const Options go_on = {{"--steps", "4"},
                         {"--checkpoint-dir", saved()},
                         {"--resume", "true"},
                         {"--save-every-steps", "1"},
                         {"--output", file("out")}};
  const CliResult full = Child(dir_.path(), train_arguments(go_on), size / 2).wait();
  EXPECT_EQ(full.code, 3) << full.err;
  EXPECT_TRUE(contains(full.err, "nibble: error: cannot write " + saved() + "/" + checkpoint(3)))
      << full.err;
  EXPECT_EQ(names_in(saved()), std::vector<std::string>{checkpoint(2)});
  EXPECT_FALSE(fs::exists(file("out")));
  const auto status = nlohmann::json::parse(read_text_file(file("runs/run/status.json")));
  EXPECT_EQ(status["state"], "failed");
  trained(go_on);
  EXPECT_TRUE(file_bytes(file("out/model.safetensors")) == exported({{"--steps", "4"}}));
}

// A run long enough to be interrupted in its middle.
class Interrupted : public TrainResume {
 protected:
  const Options long_run_ = {{"--steps", "300"}, {"--sample-mode", "random"}};

  // Starts the program, sends `signal` after a few steps, and waits for it.
  CliResult interrupt(int signal, Options given) {
    given.insert(long_run_.begin(), long_run_.end());
    given["--run-name"] = "long";
    Child child(dir_.path(), train_arguments(given));
    const fs::path metrics = dir_.path() / "runs/long/metrics.jsonl";
    while (child.running()) {
      std::error_code ec;
      if (fs::file_size(metrics, ec) > 1000 && !ec) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    child.signal(signal);
    return child.wait();
  }
};

TEST_F(Interrupted, CtrlCSavesAndResumeGoesOn) {
  const CliResult r = interrupt(SIGINT, {{"--checkpoint-dir", saved()}});
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_TRUE(r.out.starts_with("interrupted after step ")) << r.out;
  EXPECT_TRUE(contains(r.out, std::string(" of 300; go on with ") + kNibblePath + " train "))
      << r.out;
  EXPECT_TRUE(contains(r.out, " --checkpoint-dir " + saved() + " ")) << r.out;
  EXPECT_TRUE(contains(r.out, " --resume\n")) << "the command itself: " << r.out;
  EXPECT_EQ(names_in(saved()).size(), 1u);
  const auto status = nlohmann::json::parse(read_text_file(file("runs/long/status.json")));
  EXPECT_EQ(status["state"], "interrupted");
  EXPECT_FALSE(fs::exists(file("runs/long/model")));
  EXPECT_TRUE(resumed(long_run_) == exported(long_run_));
}

TEST_F(Interrupted, AskedToEndItSavesInItsFolder) {
  const CliResult r = interrupt(SIGTERM, {});
  EXPECT_EQ(r.code, 143) << r.err;
  const std::string checkpoints = file("runs/long/checkpoints");
  EXPECT_TRUE(contains(r.out, "--resume --checkpoint-dir " + checkpoints)) << r.out;
  EXPECT_EQ(names_in(checkpoints).size(), 1u);
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// What happens in a run beside its steps, on several ranks as on one: kept rows, probes, held-out
// losses, a collapse and the way back.
#include <nlohmann/json.hpp>

#include "ranks/ranks_train.h"
#include "support/real_weights.h"

namespace nibble::test {
namespace {

using Json = nlohmann::json;

class RanksEvents : public RanksTrain {
 protected:
  // Of the last run with this name, a JSON for each line.
  std::vector<Json> lines(const std::string& name, const std::string& file) const {
    std::vector<Json> all;
    std::ifstream in(dir_.path() / "runs" / name / file);
    for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
    return all;
  }
  std::string named(const std::string& name, const std::string& how) const {
    return "--run-name " + name + " " + how;
  }
  std::string write(const std::string& name, const std::string& text) const {
    replace_file(dir_.path() / name, text);
    return (dir_.path() / name).string();
  }
};

constexpr const char* kModes[] = {"sharded", "gathered"};

TEST_F(RanksEvents, KeptRowsHaveTheBytesOfOneProcess) {
  NIBBLE_NEEDS_MPI();
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += "plain text that stays, sentence " + std::to_string(i) + ". ";
  const std::string how = "--steps 3 --accumulate 4 --batch-size 2 --keep " +
                          write("text.txt", text) + " --keep-weight 2 --keep-share 0.5";
  const MpiRun alone = run(0, "alone", how);
  ASSERT_EQ(alone.code, 0) << alone.text;
  for (const std::string mode : kModes) {
    const MpiRun together = run(2, mode, how + " --memory-mode " + mode);
    ASSERT_EQ(together.code, 0) << together.text;
    expect_equal(mode, "alone", 3);
  }
}

TEST_F(RanksEvents, ProbesAndHeldOutLossesAreThoseOfOneProcess) {
  NIBBLE_NEEDS_MPI();
  const Json probes = {{"name", "ranks"},
                       {"version", 1},
                       {"defaults", {{"max_tokens", 6}}},
                       {"probes",
                        {{{"id", "q1"},
                          {"group", "identity"},
                          {"language", "en"},
                          {"messages", {{{"role", "user"}, {"content", "question 1"}}}},
                          {"rules", {{{"contains", "1"}}}}},
                         {{"id", "q2"},
                          {"group", "identity"},
                          {"language", "en"},
                          {"messages", {{{"role", "user"}, {"content", "question 2"}}}},
                          {"rules", {{{"contains", "4"}}}}}}}};
  const std::string how =
      "--steps 4 --accumulate 2 --eval-data " + write("held.tsv", "question 9\tanswer 81\n") +
      " --eval-every 2 --probe-every 2 --probes " + write("probes.json", probes.dump());
  const MpiRun alone = run(0, "alone", named("alone", how));
  ASSERT_EQ(alone.code, 0) << alone.text;
  const std::vector<Json> replies = lines("alone", "probes.jsonl");
  ASSERT_GT(replies.size(), 2u);
  for (const std::string mode : kModes) {
    SCOPED_TRACE(mode);
    const MpiRun together = run(2, mode, named(mode, how + " --memory-mode " + mode));
    ASSERT_EQ(together.code, 0) << together.text;
    expect_equal(mode, "alone", 4);
    const std::vector<Json> said = lines(mode, "probes.jsonl");
    ASSERT_EQ(said.size(), replies.size());
    for (size_t i = 0; i < said.size(); ++i) {
      EXPECT_EQ(said[i].value("reply", ""), replies[i].value("reply", ""));
      EXPECT_EQ(said[i].value("scores", Json()), replies[i].value("scores", Json()));
    }
    const auto steps = lines(mode, "metrics.jsonl"), steps_alone = lines("alone", "metrics.jsonl");
    ASSERT_EQ(steps.size(), steps_alone.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const char* value : {"loss", "held_out_loss", "grad_norm"}) {
        EXPECT_EQ(steps[i].value(value, Json()), steps_alone[i].value(value, Json())) << value;
      }
    }
  }
}

TEST_F(RanksEvents, ACollapseRollsBackAsOnOneProcess) {
  NIBBLE_NEEDS_MPI();
  const std::string how =
      "--steps 80 --accumulate 2 --lr 1 --warmup-steps 80 --on-collapse rollback --max-restarts 1";
  const MpiRun alone = run(0, "alone", named("alone", how));
  ASSERT_EQ(alone.code, 1) << alone.text;
  ASSERT_NE(alone.text.find("back to step "), std::string::npos) << alone.text;
  for (const std::string mode : kModes) {
    SCOPED_TRACE(mode);
    const MpiRun together = run(2, mode, named(mode, how + " --memory-mode " + mode));
    ASSERT_EQ(together.code, 1) << together.text;
    EXPECT_FALSE(fs::exists(dir_.path() / mode / "model"));
    const auto steps = lines(mode, "metrics.jsonl"), steps_alone = lines("alone", "metrics.jsonl");
    ASSERT_EQ(steps.size(), steps_alone.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].value("step", 0), steps_alone[i].value("step", 0));
      EXPECT_EQ(steps[i].value("loss", Json()), steps_alone[i].value("loss", Json()));
    }
  }
}

// A real model, three steps.
TEST_F(RanksEvents, Qwen05HasTheBytesOfOneProcess) {
  NIBBLE_NEEDS_MPI();
  NIBBLE_WEIGHTS_OR_SKIP(weights, kQwenHalf);
  const auto train = [&](int ranks, const std::string& name, const std::string& more) {
    const std::string line =
        std::string(kNibblePath) + " train --model " + weights.string() + " --train-data " +
        (dir_.path() / "pairs.tsv").string() +
        " --device cpu --threads 1 --seq-len 48 --steps 3 --accumulate 2 "
        "--grad-dtype fp32 --self-test false --keep-checkpoints 1 --runs-dir " +
        (dir_.path() / "runs").string() + " --output " + (dir_.path() / (name + ".dat")).string() +
        " " + more;
    return ranks > 0 ? mpi_run(ranks, line) : shell_run(line + " 2>&1 </dev/null");
  };
  const MpiRun alone = train(0, "alone", "");
  ASSERT_EQ(alone.code, 0) << alone.text;
  const std::string want = read_text_file(dir_.path() / "alone.dat");
  for (const std::string mode : kModes) {
    const MpiRun together = train(2, mode, "--memory-mode " + mode);
    ASSERT_EQ(together.code, 0) << together.text;
    EXPECT_TRUE(read_text_file(dir_.path() / (mode + ".dat")) == want) << mode;
    fs::remove(dir_.path() / (mode + ".dat"));
  }
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// nibble train under mpirun: processes that train one model together, against one process.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/mpi_run.h"
#include "support/paths.h"
#include "support/text.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

// With parameters of several chunks, whose rows do not end where chunks do.
Config toy_of_chunks() {
  Config c = toy_chat_config();
  c.C = 224, c.D = 32, c.Hq = 7, c.Hkv = 1, c.F = 320;
  return c;
}

class RanksTrain : public testing::Test {
 protected:
  void SetUp() override {
    write_toy_directory(dir_.path() / "m", toy_of_chunks());
    std::string pairs;
    for (int i = 0; i < 7; ++i) {
      pairs += "question " + std::to_string(i) + "\tanswer " + std::to_string(i * i) + "\n";
    }
    replace_file(dir_.path() / "pairs.tsv", pairs);
  }

  // Arguments of a training; `name` is that of its folder, which has its checkpoints and its model.
  std::string train(const std::string& name, const std::string& more) const {
    const fs::path folder = dir_.path() / name;
    return std::string(kNibblePath) + " train --model " + (dir_.path() / "m").string() +
           " --train-data " + (dir_.path() / "pairs.tsv").string() +
           " --device cpu --threads 1 --seq-len 48 --lr 1e-3 --grad-dtype fp32 --self-test false"
           " --checkpoint-dir " +
           (folder / "saved").string() + " --save-every-steps 1" +
           " --keep-checkpoints 0 --runs-dir " + (dir_.path() / "runs").string() + " --output " +
           (folder / "model").string() + " " + more;
  }
  // By so many ranks; 0: without mpirun.
  MpiRun run(int ranks, const std::string& name, const std::string& more) const {
    fs::create_directories(dir_.path() / name);
    if (ranks > 0) return mpi_run(ranks, train(name, more), "NIBBLE_RANK_LIMIT=60");
    return shell_run(train(name, more) + " 2>&1 </dev/null");
  }
  std::string model_of(const std::string& name) const {
    return read_text_file(dir_.path() / name / "model" / "model.safetensors");
  }
  std::string checkpoint_of(const std::string& name, int step) const {
    return read_text_file(dir_.path() / name / "saved" /
                          ("checkpoint-0000000" + std::to_string(step) + ".safetensors"));
  }
  void expect_equal(const std::string& a, const std::string& b, int steps) const {
    EXPECT_TRUE(model_of(a) == model_of(b)) << a << " and " << b << " exported other bytes";
    for (int s = 1; s <= steps; ++s) {
      EXPECT_TRUE(checkpoint_of(a, s) == checkpoint_of(b, s))
          << a << " and " << b << ", step " << s;
    }
  }

  TemporaryDirectory dir_{"ranks-train"};
};

TEST_F(RanksTrain, CheckpointsAndModelHaveTheBytesOfOneProcess) {
  NIBBLE_NEEDS_MPI();
  for (const std::string loss : {"ce", "scalar"}) {
    const std::string how = "--steps 3 --accumulate 4 --loss " + loss;
    const MpiRun alone = run(0, "alone-" + loss, how);
    ASSERT_EQ(alone.code, 0) << alone.text;
    for (const int n : {1, 2, 4}) {
      const std::string name = std::to_string(n) + "-" + loss;
      const MpiRun together = run(n, name, how);
      ASSERT_EQ(together.code, 0) << together.text;
      expect_equal(name, "alone-" + loss, 3);
      if (n == 1) continue;
      // Rank 0 speaks: one line of each kind.
      const std::string said = std::to_string(n) + " ranks over MPI";
      ASSERT_NE(together.text.find(said), std::string::npos) << together.text;
      for (const std::string& line : {said, std::string("step 3/3"), std::string("run folder")}) {
        EXPECT_EQ(together.text.find(line), together.text.rfind(line)) << together.text;
      }
    }
  }
}

TEST_F(RanksTrain, AnotherNumberOfRanksGoesOnFromACheckpoint) {
  NIBBLE_NEEDS_MPI();
  const MpiRun alone = run(0, "alone", "--steps 5 --accumulate 4");
  ASSERT_EQ(alone.code, 0) << alone.text;
  const MpiRun first = run(4, "moved", "--steps 2");  // 4 micro-batches: one each
  ASSERT_EQ(first.code, 0) << first.text;
  const MpiRun second = run(2, "moved", "--steps 4 --accumulate 4 --resume --force");
  ASSERT_EQ(second.code, 0) << second.text;
  EXPECT_NE(second.text.find("at step 2"), std::string::npos) << second.text;
  const MpiRun third = run(0, "moved", "--steps 5 --accumulate 4 --resume --force");
  ASSERT_EQ(third.code, 0) << third.text;
  EXPECT_NE(third.text.find("at step 4"), std::string::npos) << third.text;
  expect_equal("moved", "alone", 5);
}

TEST_F(RanksTrain, RanksOfAnotherRunAreRefusedAtTheStart) {
  NIBBLE_NEEDS_MPI();
  fs::create_directories(dir_.path() / "mixed");
  const MpiRun other = mpi_run(
      1, train("mixed", "--steps 2") + " : -n 1 " + train("mixed", "--steps 2 --weight-decay 0.5"));
  EXPECT_EQ(other.code, 2) << other.text;
  EXPECT_NE(other.text.find("the ranks were not started for the same run:"), std::string::npos)
      << other.text;
  EXPECT_NE(other.text.find("weight-decay: rank 0 on "), std::string::npos) << other.text;
  EXPECT_NE(other.text.find("has 0.5"), std::string::npos) << other.text;
  EXPECT_FALSE(fs::exists(dir_.path() / "mixed" / "model"));
}

TEST_F(RanksTrain, MicroBatchesMustBeSharedEqually) {
  NIBBLE_NEEDS_MPI();
  const MpiRun three = run(2, "three", "--steps 2 --accumulate 3");
  EXPECT_EQ(three.code, 2) << three.text;
  EXPECT_NE(three.text.find("--accumulate 3 micro-batches cannot be shared equally by 2 ranks"),
            std::string::npos)
      << three.text;
  EXPECT_EQ(run(2, "resident", "--steps 2 --memory-mode resident").code, 2);
  EXPECT_EQ(run(0, "sharded", "--steps 2 --memory-mode sharded").code, 2);
}

// Kills one of the ranks after some of the first steps; what is there afterwards goes on.
TEST_F(RanksTrain, ARankThatIsKilledEndsAllAndTheRunGoesOn) {
  NIBBLE_NEEDS_MPI();
  for (const int who : {0, 1}) {
    const std::string name = "killed-" + std::to_string(who);
    fs::create_directories(dir_.path() / name);
    const std::string saved = (dir_.path() / name / "saved").string();
    // The rank ends itself as soon as it sees a checkpoint: in the middle of what comes after.
    const std::string script = (dir_.path() / "rank.sh").string();
    replace_file(script,
                 "#!/bin/sh\n"
                 "if [ \"$OMPI_COMM_WORLD_RANK\" = " +
                     std::to_string(who) +
                     " ]; then\n"
                     "  (until [ -e " +
                     saved +
                     "/checkpoint-00000002.safetensors ]; do sleep 0.01; done\n"
                     "   kill -9 $$) &\n"
                     "fi\n"
                     "exec \"$@\"\n");
    const MpiRun killed =
        mpi_run(2, "sh " + script + " " + train(name, "--steps 300"), "NIBBLE_RANK_LIMIT=30");
    EXPECT_NE(killed.code, 0) << killed.text;
    EXPECT_NE(killed.text.find("signal 9"), std::string::npos) << killed.text;
    EXPECT_FALSE(fs::exists(dir_.path() / name / "model"));
    // From there to the same end as a run that nobody ended.
    int last = 0;
    for (const auto& e : fs::directory_iterator(saved)) {
      const std::string stem = e.path().stem().string();
      if (stem.starts_with("checkpoint-")) last = std::max(last, std::stoi(stem.substr(11)));
    }
    ASSERT_GE(last, 2);
    const std::string steps = std::to_string(last + 2);
    const MpiRun on = run(2, name, "--steps " + steps + " --resume --force");
    ASSERT_EQ(on.code, 0) << on.text;
    const std::string whole = "whole-" + std::to_string(who);
    const MpiRun left_alone = run(0, whole, "--accumulate 2 --steps " + steps);
    ASSERT_EQ(left_alone.code, 0) << left_alone.text;
    EXPECT_TRUE(model_of(name) == model_of(whole));
  }
}

// One that hangs is named by the others, with the place, within the limit.
TEST_F(RanksTrain, ARankThatHangsIsNamedAndAllEnd) {
  NIBBLE_NEEDS_MPI();
  fs::create_directories(dir_.path() / "hangs");
  const std::string saved = (dir_.path() / "hangs" / "saved").string();
  const std::string script = (dir_.path() / "rank.sh").string();
  replace_file(script,
               "#!/bin/sh\n"
               "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then\n"
               "  (until [ -e " +
                   saved +
                   "/checkpoint-00000002.safetensors ]; do sleep 0.01; done\n"
                   "   kill -STOP $$) &\n"
                   "fi\n"
                   "exec \"$@\"\n");
  const MpiRun hangs =
      mpi_run(2, "sh " + script + " " + train("hangs", "--steps 300"), "NIBBLE_RANK_LIMIT=3");
  EXPECT_EQ(hangs.code, 4) << hangs.text;
  EXPECT_NE(hangs.text.find("for rank 1 on "), std::string::npos) << hangs.text;
  EXPECT_NE(hangs.text.find(" waited 3 s at "), std::string::npos) << hangs.text;
}

TEST_F(RanksTrain, ABuildWithoutMpiDoesNotTrainTwiceAtOnce) {
  if (!mpi_library().empty()) GTEST_SKIP() << "built with MPI";
  const MpiRun r = shell_run("OMPI_COMM_WORLD_SIZE=2 " + train("twice", "--steps 2") + " 2>&1");
  EXPECT_EQ(r.code, 2) << r.text;
  EXPECT_NE(r.text.find("built without MPI"), std::string::npos) << r.text;
}

}  // namespace
}  // namespace nibble::test

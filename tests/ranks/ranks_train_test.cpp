// SPDX-License-Identifier: MIT
// The bits of several ranks, who is refused, who dies and who hangs.
#include "ranks/ranks_train.h"

namespace nibble::test {
namespace {

TEST_F(RanksTrain, CheckpointsAndModelHaveTheBytesOfOneProcess) {
  NIBBLE_NEEDS_MPI();
  for (const std::string loss : {"ce", "scalar"}) {
    const std::string how = "--steps 3 --accumulate 4 --loss " + loss;
    const MpiRun alone = run(0, "alone-" + loss, how);
    ASSERT_EQ(alone.code, 0) << alone.text;
    const std::string gathered = " --memory-mode gathered";
    for (const auto& [n, mode] : {std::pair(1, std::string()), {2, ""}, {4, ""}, {2, gathered}}) {
      const std::string name = std::to_string(n) + "-" + loss + (mode.empty() ? "" : "-gathered");
      const MpiRun together = run(n, name, how + mode);
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
  const MpiRun second =
      run(2, "moved", "--steps 4 --accumulate 4 --memory-mode gathered --resume --force");
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

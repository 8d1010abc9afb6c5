// SPDX-License-Identifier: MIT
#include "comm/comm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "comm/comm_checks.h"
#include "comm/process_ranks.h"
#include "comm/work_queue.h"
#include "core/error.h"
#include "support/mpi_run.h"
#include "support/paths.h"
#include "support/thread_ranks.h"

namespace nibble::test {
namespace {

TEST(Comm, AloneIsARankOfOne) {
  const auto comm = make_alone();
  EXPECT_EQ(check_comm(*comm), "");
  EXPECT_EQ(comm->size(), 1);
  EXPECT_TRUE(comm->leads());
  EXPECT_EQ(comm->bytes_sent(), 0u);
}

TEST(Comm, ThreadsDoWhatRanksMust) {
  for (const int n : {1, 2, 3, 4}) {
    ThreadRanks(n).run([](Comm& c) { EXPECT_EQ(check_comm(c), ""); });
  }
}

// The check above would notice another order: these numbers have one sum for each.
TEST(Comm, TheOrderOfTheSumMatters) {
  int64_t differ = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const float forward = rough(0, i) + rough(1, i) + rough(2, i);
    const float backward = rough(2, i) + rough(1, i) + rough(0, i);
    differ += forward != backward;
  }
  EXPECT_GT(differ, 100);
}

TEST(Comm, Bf16IsAddedInFp32) {
  float sum[2] = {1, -1};
  bf16_t x[2] = {to_bf16(0x1p-20f), to_bf16(0x1p-8f)};
  add_in_order(make_tensor(sum, DType::f32, {2}), make_tensor(x, DType::bf16, {2}));
  EXPECT_EQ(sum[0], 1 + 0x1p-20f);
  EXPECT_EQ(sum[1], -1 + 0x1p-8f);
}

TEST(Comm, WhatDoesNotGoTogetherIsOurBug) {
  const auto comm = make_alone();
  float x[4] = {};
  int32_t i[4] = {};
  const Tensor floats = make_tensor(x, DType::f32, {4});
  EXPECT_THROW(comm->all_reduce(make_tensor(i, DType::i32, {4})), InternalError);
  EXPECT_THROW(comm->reduce_scatter(make_tensor(x, DType::f32, {3}), floats), InternalError);
  EXPECT_THROW(comm->broadcast(floats, 1), InternalError);
  EXPECT_THROW(comm->exchange({}, {}), InternalError);
  EXPECT_THROW(comm->all_gather({}), InternalError);
}

TEST(Comm, WhoDoesNotComeIsNamedWithThePlace) {
  try {
    ThreadRanks(3, 0.2).run([](Comm& c) {
      c.barrier();
      c.at("step 7, gradients of layer 2");
      if (c.rank() != 1) c.barrier();
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    });
    FAIL() << "nobody waited";
  } catch (const DeviceError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("at step 7, gradients of layer 2 for rank 1 on here"), text.npos) << text;
  }
}

TEST(Comm, WhatIsSaidBesideStaysApart) {
  for (const int n : {1, 2, 4}) {
    ThreadRanks(n).run([](Comm& c) {
      Comm& beside = c.beside();
      EXPECT_EQ(&beside, &c.beside());
      EXPECT_EQ(beside.rank(), c.rank());
      std::string there;
      {
        WorkQueue queue;
        queue.add([&] { there = check_comm(beside); });
        EXPECT_EQ(check_comm(c), "");
      }
      EXPECT_EQ(there, "");
    });
  }
}

TEST(WorkQueue, DoesOneThingAfterTheOther) {
  WorkQueue queue;
  std::vector<int> done;
  uint64_t last = 0;
  for (int i = 0; i < 100; ++i) last = queue.add([&done, i] { done.push_back(i); });
  EXPECT_EQ(last, 100u);
  queue.wait(0);
  queue.wait(last);
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[size_t(i)], i);
}

TEST(WorkQueue, WaitsForWhatIsAskedForAndNoMore) {
  std::atomic<bool> go = false;
  WorkQueue queue;
  const uint64_t first = queue.add([] {});
  queue.add([&] { go.wait(false); });
  queue.wait(first);  // would hang if it waited for both
  go = true;
  go.notify_all();
  queue.wait_for_all();
}

TEST(WorkQueue, AnErrorEndsItAndComesFromEveryWait) {
  WorkQueue queue;
  bool after = false;
  const uint64_t bad = queue.add([] { throw_device("the cable"); });
  queue.add([&] { after = true; });
  EXPECT_THROW(queue.wait(bad), DeviceError);
  EXPECT_THROW(queue.wait_for_all(), DeviceError);
  EXPECT_FALSE(after);
}

TEST(WorkQueue, EverythingIsDoneBeforeItGoes) {
  int done = 0;
  {
    WorkQueue queue;
    for (int i = 0; i < 10; ++i) queue.add([&] { ++done; });
  }
  EXPECT_EQ(done, 10);
}

// Variables of the environment while it lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Environment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(ProcessRanks, AreWhatTheLauncherSays) {
  EXPECT_EQ(launched_ranks(), 1);
  {
    const Environment e("OMPI_COMM_WORLD_SIZE", "4");
    EXPECT_EQ(launched_ranks(), 4);
    if (mpi_library().empty()) {
      EXPECT_THROW(join_ranks(), UsageError);
    }
  }
  {
    const Environment e("PMI_SIZE", "3");
    EXPECT_EQ(launched_ranks(), 3);
  }
  {
    const Environment tasks("SLURM_STEP_NUM_TASKS", "8");
    EXPECT_EQ(launched_ranks(), 1);  // a script of sbatch
    const Environment e("PMIX_RANK", "0");
    EXPECT_EQ(launched_ranks(), 8);
  }
  EXPECT_EQ(join_ranks()->name(), "alone");
}

TEST(ProcessRanks, TheLimitIsANumberOfSeconds) {
  EXPECT_EQ(rank_limit(), 600);
  for (const char* bad : {"", "0", "-1", "ten", "5s", "inf", "nan"}) {
    const Environment e("NIBBLE_RANK_LIMIT", bad);
    EXPECT_THROW(rank_limit(), UsageError) << bad;
  }
  const Environment e("NIBBLE_RANK_LIMIT", "2.5");
  EXPECT_EQ(rank_limit(), 2.5);
}

TEST(Mpi, DoesWhatRanksMust) {
  NIBBLE_NEEDS_MPI();
  for (const int n : {1, 2, 4}) {
    const MpiRun run = mpi_run(n, std::string(kRankChild) + " check");
    EXPECT_EQ(run.code, 0) << run.text;
    EXPECT_NE(run.text.find("all is well on " + std::to_string(n) + " ranks"), std::string::npos)
        << run.text;
  }
}

TEST(Mpi, ARankThatHangsIsNamedAndAllEnd) {
  NIBBLE_NEEDS_MPI();
  for (const int who : {0, 2}) {
    const MpiRun run =
        mpi_run(3, std::string(kRankChild) + " hang " + std::to_string(who), "NIBBLE_RANK_LIMIT=2");
    EXPECT_EQ(run.code, 4) << run.text;
    EXPECT_NE(run.text.find("at the place it waits for rank " + std::to_string(who) + " on "),
              std::string::npos)
        << run.text;
  }
}

TEST(Mpi, ARankThatIsKilledEndsAll) {
  NIBBLE_NEEDS_MPI();
  for (const int who : {0, 1}) {
    const MpiRun run =
        mpi_run(2, std::string(kRankChild) + " die " + std::to_string(who), "NIBBLE_RANK_LIMIT=30");
    EXPECT_NE(run.code, 0) << run.text;
    EXPECT_NE(run.text.find("signal 9"), std::string::npos) << run.text;
  }
}

TEST(Mpi, ARankWithAnErrorEndsAllWithItsCode) {
  NIBBLE_NEEDS_MPI();
  const MpiRun run = mpi_run(3, std::string(kRankChild) + " fail 1", "NIBBLE_RANK_LIMIT=30");
  EXPECT_EQ(run.code, 3) << run.text;
  EXPECT_NE(run.text.find("a file of this rank"), std::string::npos) << run.text;
}

}  // namespace
}  // namespace nibble::test

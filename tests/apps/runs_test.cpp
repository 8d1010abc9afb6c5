// SPDX-License-Identifier: MIT
// nibble runs watch: running, finished, failed and dead runs.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <thread>

#include "apps/cli_run.h"
#include "apps/run_folder.h"
#include "apps/run_recorder.h"
#include "apps/run_view.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

StepRecord record(int64_t step) {
  StepRecord r;
  r.step = step;
  r.loss = 4.0 / double(step);
  r.smoothed_loss = 5.0 / double(step);
  r.lr = 2e-5;
  r.grad_norm = 0.75;
  r.tokens = 100;
  r.seconds = 0.25;
  r.rss_bytes = uint64_t(3) << 30;
  return r;
}

class RunsTest : public testing::Test {
 protected:
  fs::path folder(const std::string& name) { return create_run_folder(dir_.path(), name); }
  CliResult watch(std::vector<std::string> args = {}) {
    args.insert(args.begin(), {"runs", "watch"});
    args.insert(args.end(), {"--runs-dir", dir_.path().string()});
    return cli(args);
  }
  TemporaryDirectory dir_{"runs"};
};

TEST_F(RunsTest, ARunningOneOnce) {
  RunRecorder recorder(folder("mine"), "train", "", 8);
  for (int64_t step = 1; step <= 2; ++step) recorder.step(record(step));
  const CliResult r = watch({"mine", "--once"});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const std::string& part :
       {std::string("run       ") + recorder.directory().string(),
        fmt::format("state     running (pid {})\n", ::getpid()),
        std::string("step      2/8  [######------------------] 25 %\n"),
        std::string("loss      2.0000  smoothed 2.5000\n"),
        std::string("rate      lr 2e-05  |g| 0.75\n"), std::string("speed     400.0 tokens/s\n"),
        std::string("memory    3.00 GiB\n"), std::string("curve     █▁\n"),
        std::string("last      step      1  loss 4.0000"),
        std::string("          step      2  loss 2.0000"), std::string(" left\n")}) {
    EXPECT_TRUE(contains(r.out, part)) << part << " in\n" << r.out;
  }
  EXPECT_FALSE(contains(r.out, "\x1b"));
  EXPECT_FALSE(contains(r.out, "try it"));
}

TEST_F(RunsTest, UntilItEnds) {
  const fs::path run = folder("mine");
  RunRecorder recorder(run, "train", "", 2);
  std::thread worker([&] {
    for (int64_t step = 1; step <= 2; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      recorder.step(record(step));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    recorder.finish(RunState::finished);
  });
  const CliResult r = watch({"--interval", "0.05"});
  worker.join();
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "step 1/2  loss 4.0000  smoothed 5.0000  lr 2e-05")) << r.out;
  EXPECT_TRUE(contains(r.out, "step 2/2  loss 2.0000")) << r.out;
  EXPECT_TRUE(contains(r.out, "state     finished\n")) << r.out;
  EXPECT_TRUE(contains(r.out, "100 %")) << r.out;
}

TEST_F(RunsTest, FailedAndInterrupted) {
  {
    RunRecorder failed(folder("failed"), "train", "", 2);
    failed.finish(RunState::failed, "the disk is full");
    RunRecorder interrupted(folder("interrupted"), "train", "", 2);
    interrupted.finish(RunState::interrupted);
  }
  const CliResult f = watch({"failed"});
  EXPECT_EQ(f.code, 1);
  EXPECT_TRUE(contains(f.out, "state     failed: the disk is full\n")) << f.out;
  const CliResult i = watch({"interrupted"});
  EXPECT_EQ(i.code, 1);
  EXPECT_TRUE(contains(i.out, "state     interrupted\n")) << i.out;
}

TEST_F(RunsTest, ADeadProcessIsNoticed) {
  const fs::path run = folder("dead");
  const pid_t pid = ::fork();
  if (pid == 0) {  // as a crash: no destructor, no last word
    RunRecorder recorder(run, "train", "", 10);
    for (int64_t step = 1; step <= 4; ++step) recorder.step(record(step));
    std::ofstream(run / "metrics.jsonl", std::ios::app) << "{\"step\":5,\"lo";
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(read_status(run).state, RunState::running);
  const CliResult r = watch();
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "state     the process has gone; last step 4\n")) << r.out;
  EXPECT_TRUE(contains(r.out, "step      4/10 ")) << r.out;
}

TEST_F(RunsTest, LatestIsTheOneStartedLast) {
  for (const char* name : {"z", "a"}) {
    RunRecorder recorder(folder(name), "train", "", 2);
    recorder.finish(RunState::finished);
  }
  fs::create_directory(dir_.path() / "zz");
  write_text_file_atomic(dir_.path() / "zzz", "a file");
  EXPECT_EQ(list_runs(dir_.path()), (std::vector{dir_.path() / "z", dir_.path() / "a"}));
  EXPECT_EQ(find_run(dir_.path(), "latest"), dir_.path() / "a");
  EXPECT_EQ(find_run(dir_.path(), "z"), dir_.path() / "z");
  EXPECT_EQ(find_run("nowhere", (dir_.path() / "z").string()), dir_.path() / "z");
  EXPECT_THROW(find_run(dir_.path(), "zz"), FormatError);
  EXPECT_THROW(find_run(dir_.path() / "none", "latest"), FormatError);
}

TEST_F(RunsTest, HowToTryTheWeights) {
  const fs::path run = folder("mine");
  RunRecorder recorder(run, "train", "", 2);
  const fs::path model = dir_.path() / "a model";
  recorder.checkpoint(dir_.path() / "step-1", model);
  EXPECT_FALSE(contains(watch({"--once"}).out, "try it"));  // it does not exist
  fs::create_directory(model);
  const std::string before = watch({"--once"}).out;
  EXPECT_TRUE(contains(before, "try it    nibble chat --model '" + model.string() + "'\n"));
  EXPECT_TRUE(contains(before, "saved     " + (dir_.path() / "step-1").string() + "\n"));
  // What was exported counts for more than a checkpoint.
  write_text_file_atomic(dir_.path() / "out.dat", "x");
  recorder.exported(dir_.path() / "out.dat");
  EXPECT_TRUE(contains(watch({"--once"}).out,
                       "try it    nibble chat --model " + dir_.file("out.dat") + "\n"));
}

TEST_F(RunsTest, Misuse) {
  cli_fails({"runs"}, 2, "ACTION is missing");
  for (const char* later : {"list", "show", "compare", "plot", "export", "prune"}) {
    cli_fails({"runs", later}, 2, "is not in this version");
  }
  cli_fails({"runs", "wach"}, 2, "unknown action 'wach': use watch");
  cli_fails({"runs", "watch", "--runs-dir", dir_.path().string()}, 3, "there is no run in");
  cli_fails({"runs", "watch", "none", "--runs-dir", dir_.path().string()}, 3, "no run none");
  cli_fails({"runs", "watch", "--interval", "0"}, 2, "--interval");
}

TEST(RunView, Sparkline) {
  EXPECT_EQ(sparkline(std::vector<double>{}, 10), "");
  EXPECT_EQ(sparkline(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(std::vector<double>{3, 3, 3}, 8), "▁▁▁");
  EXPECT_EQ(sparkline(std::vector<double>{1, NAN, 5}, 8), "▁█");
  EXPECT_EQ(sparkline(std::vector<double>{1, 3, 5, 7}, 2), "▁█");  // means 2 and 6
}

TEST(RunView, Clipped) {
  EXPECT_EQ(clipped("abc", 3), "abc");
  EXPECT_EQ(clipped("abcd", 3), "abc");
  EXPECT_EQ(clipped("▁▂▃", 2), "▁▂");
}

}  // namespace
}  // namespace nibble::test

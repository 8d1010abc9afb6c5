// SPDX-License-Identifier: MIT
// Signals: what is ignored stays ignored, what asks for an end gets one soon, and the exit code
// says so.
#include "core/json.h"
#include "hostile/program.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class Signals : public HostileTest {
 protected:
  static void ignore(int signal) { std::signal(signal, SIG_IGN); }
};

TEST_F(Signals, AnInterruptedRunSaysSo) {
  for (const int signal : {SIGINT, SIGTERM}) {
    fs::remove_all(file("runs"));
    Program program(train_words({"--steps", "3000"}));
    ASSERT_TRUE(program.runs_until([&] { return trained_some_steps(); }));
    program.signal(signal);
    const Ended r = program.wait();
    EXPECT_EQ(r.code, 128 + signal) << r.err;
    EXPECT_TRUE(contains(r.out, "go on with the same command and --resume")) << r.out;
  }
}

// nohup, and jobs that a script starts in the background.
TEST_F(Signals, WhatIsIgnoredStaysIgnored) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    fs::remove_all(file("runs"));
    Program program(train_words({"--steps", "400", "--export", "false"}),
                    [signal] { ignore(signal); });
    ASSERT_TRUE(program.runs_until([&] { return trained_some_steps(); }));
    program.signal(signal);
    EXPECT_EQ(program.wait().code, 0) << signal;
  }
}

// A step of very many micro-batches is not finished first, and its samples come again.
TEST_F(Signals, AreAnsweredBetweenMicroBatches) {
  const auto words = [&](const char* name, const char* accumulate, const Words& more) {
    Words w =
        train_words({"--accumulate", accumulate, "--lr", "1e-3", "--steps", "3", "--save-every",
                     "1", "--checkpoint-dir", file(name), "--run-name", name});
    w.insert(w.end(), more.begin(), more.end());
    return w;
  };
  // So many that a step takes long: the first is left to end, the second is interrupted.
  constexpr const char* kMany = "300";
  const auto first_step = [&] {
    return fs::exists(file("runs/stopped/metrics.jsonl")) &&
           fs::file_size(file("runs/stopped/metrics.jsonl")) > 0;
  };
  Program program(words("stopped", kMany, {}));
  ASSERT_TRUE(program.runs_until(first_step));
  const auto asked = Clock::now();
  program.signal(SIGTERM);
  const Ended r = program.wait();
  EXPECT_EQ(r.code, 143) << r.err;
  EXPECT_LT(Clock::now() - asked, std::chrono::seconds(1));
  EXPECT_TRUE(contains(r.out, "interrupted after step 1 of 3")) << r.out;
  // And the rest is what it would have been.
  const Ended on = run_program(words("stopped", kMany, {"--resume", "--run-name", "on"}));
  ASSERT_EQ(on.code, 0) << on.err;
  ASSERT_EQ(run_program(words("alone", kMany, {})).code, 0);
  EXPECT_TRUE(read_text_file(file("runs/on/model/model.safetensors")) ==
              read_text_file(file("runs/alone/model/model.safetensors")));
}

// Before the first step is done there is nothing to save, and nothing is.
TEST_F(Signals, InTheFirstStepLeaveNoCheckpoint) {
  Program program(train_words({"--accumulate", "20000", "--steps", "2"}));
  ASSERT_TRUE(program.runs_until([&] { return contains(program.err(), "samples, window"); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  program.signal(SIGINT);
  const Ended r = program.wait();
  EXPECT_TRUE(r.code == 130 || r.code == 1000 + SIGINT) << r.code << r.err;  // or before the steps
  EXPECT_FALSE(fs::exists(file("runs/run/checkpoints")));
}

}  // namespace
}  // namespace nibble::test

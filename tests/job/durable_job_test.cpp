// SPDX-License-Identifier: MIT
// What was learned is not lost: exports that fail, checkpoints that are damaged, other runs.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>

#include "core/durable/directories.h"
#include "core/durable/file_lock.h"
#include "core/sha256.h"
#include "job/disk_space.h"
#include "job/toy_job.h"
#include "runlog/run_record.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class Listener final : public JobEvents {
 public:
  std::function<void()> on_export;
  int64_t stop_after = 0;
  void text(std::string_view lines) override { said += lines; }
  bool stop_requested() override { return stop_after > 0 && steps >= stop_after; }
  void step_done(const StepRecord&) override { ++steps; }
  void checkpoint_saved(const fs::path& file) override { saved.push_back(file); }
  void export_begin() override {
    exporting = true;
    if (on_export) on_export();
  }
  void export_end() override { exporting = false; }
  void model_exported(const fs::path&) override { EXPECT_TRUE(exporting) << "signals wait"; }

  std::string said;
  std::vector<fs::path> saved;
  int64_t steps = 0;
  bool exporting = false;
};

class DurableJob : public ToyJobTest {
 protected:
  TrainJob job(const std::string& name) const {
    TrainJob j = toy_job(name);
    j.output = dir_.path() / name / "model.safetensors";
    j.command = "nibble train --steps 4";
    return j;
  }
  TrainJob saving_job(const std::string& name) const {
    TrainJob j = job(name);
    j.run.checkpoint_dir = dir_.path() / ("saved-" + name);
    j.run.save_every = 1;
    return j;
  }
  using ToyJobTest::run;
  JobResult run(const TrainJob& j) {
    Listener quiet;
    return run(j, quiet);
  }
  std::string refused(const TrainJob& j) {
    try {
      run(j);
    } catch (const UsageError& e) {
      return e.what();
    }
    ADD_FAILURE() << "it was not refused";
    return "";
  }
  static void flip_byte(const fs::path& file, uint64_t at) {
    std::string bytes = read_text_file(file);
    bytes[at] = char(bytes[at] ^ 4);
    replace_file(file, bytes);
  }
  std::string expected() {
    const TrainJob j = job("expected");
    EXPECT_EQ(run(j).end, JobEnd::finished);
    return read_text_file(j.output);
  }
};

TEST_F(DurableJob, AFailedExportLeavesACheckpointAndSaysHowToGoOn) {
  TrainJob j = job("first");
  Listener events;
  events.on_export = [&] {
    ASSERT_EQ(events.saved.size(), 1u) << "a checkpoint stands before the export begins";
    EXPECT_TRUE(fs::exists(events.saved.front()));
    fs::create_directories(j.output.parent_path());
    replace_file(j.output, "somebody else's");  // so that the export cannot take the name
  };
  std::string said;
  try {
    run(j, events);
    FAIL() << "no error";
  } catch (const FormatError&) {
    FAIL() << "it lacks the way to go on";
  } catch (const Error& e) {
    said = e.what();
    EXPECT_EQ(e.code(), ExitCode::file);
  }
  EXPECT_EQ(read_text_file(j.output), "somebody else's");
  EXPECT_FALSE(events.exporting) << "signals are signals again";
  const fs::path saved = dir_.path() / "runs" / "first" / "checkpoints";
  const std::string command = "nibble train --steps 4 --resume --checkpoint-dir " + saved.string();
  EXPECT_TRUE(contains(said, command)) << said;
  EXPECT_EQ(read_record(dir_.path() / "runs" / "first").status.state, RunState::failed);

  j.run.resume = true;
  j.run.checkpoint_dir = saved;
  j.output = dir_.path() / "second.safetensors";
  Listener rest;
  EXPECT_EQ(run(j, rest).end, JobEnd::finished);
  EXPECT_EQ(rest.steps, 0) << "all were done";
  EXPECT_TRUE(read_text_file(j.output) == expected());
}

TEST_F(DurableJob, CheckpointsNobodyAskedForGoWhenAllWentWell) {
  TrainJob j = job("well");
  j.run.save_minutes = 1e-9;  // after every step
  Listener events;
  EXPECT_EQ(run(j, events).end, JobEnd::finished);
  EXPECT_EQ(events.saved.size(), 4u);
  EXPECT_FALSE(fs::exists(dir_.path() / "runs" / "well" / "checkpoints"));
  EXPECT_EQ(read_record(dir_.path() / "runs" / "well").status.checkpoint, "");

  TrainJob never = job("never");
  never.run.save_minutes = 0;
  never.write_output = false;
  never.output.clear();
  Listener none;
  run(never, none);
  EXPECT_TRUE(none.saved.empty());

  TrainJob failed = job("failed");
  failed.test.prompt = "hello";
  failed.test.expect = {"no reply says this"};
  EXPECT_EQ(run(failed).end, JobEnd::failed);
  EXPECT_EQ(list_checkpoints(dir_.path() / "runs" / "failed" / "checkpoints").size(), 1u);

  const TrainJob asked = saving_job("asked");
  EXPECT_EQ(run(asked).end, JobEnd::finished);
  EXPECT_EQ(list_checkpoints(asked.run.checkpoint_dir).size(), 2u);
}

TEST_F(DurableJob, ADamagedCheckpointIsSetAsideAndTheOneBeforeTaken) {
  TrainJob j = saving_job("torn");
  Listener events;
  events.stop_after = 3;
  ASSERT_EQ(run(j, events).end, JobEnd::interrupted);
  const fs::path newest = j.run.checkpoint_dir / checkpoint_name(3);
  flip_byte(newest, fs::file_size(newest) - 5);
  j.run.resume = true;
  ::testing::internal::CaptureStderr();
  Listener rest;
  EXPECT_EQ(run(j, rest).end, JobEnd::finished);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(rest.steps, 2) << "from step 2";
  EXPECT_TRUE(contains(said, "is damaged")) << said;
  EXPECT_TRUE(fs::exists(newest.string() + ".damaged"));
  EXPECT_TRUE(read_text_file(j.output) == expected());

  // When none is sound nothing is done, and nothing is touched.
  for (const CheckpointFile& c : list_checkpoints(j.run.checkpoint_dir)) flip_byte(c.path, 2000);
  const auto before = list_checkpoints(j.run.checkpoint_dir).size();
  j.output = dir_.path() / "other.safetensors";
  EXPECT_THROW(run(j), FormatError);
  EXPECT_EQ(list_checkpoints(j.run.checkpoint_dir).size(), before);
}

// The first 4 KiB of every tensor are the same.
// A kill between saving and removing the oldest: whoever goes on removes it, even when nothing is
// left to save.
TEST_F(DurableJob, CheckpointsThatAKillLeftGoWhenTheRunGoesOn) {
  TrainJob j = saving_job("left");
  ASSERT_EQ(run(j).end, JobEnd::finished);
  const auto saved = [&](int64_t step) { return j.run.checkpoint_dir / checkpoint_name(step); };
  ASSERT_TRUE(fs::exists(saved(3)) && fs::exists(saved(4)) && !fs::exists(saved(2)));
  fs::copy_file(saved(3), saved(2));
  j.run.resume = j.force = true;
  EXPECT_EQ(run(j).end, JobEnd::finished);
  EXPECT_FALSE(fs::exists(saved(2)));
  EXPECT_TRUE(fs::exists(saved(3)) && fs::exists(saved(4)));
}

// The record has the hash of what was read, whatever has its name by then.
TEST_F(DurableJob, ConfigAndTokenizerAreRecordedAsTheyWereRead) {
  const TrainJob j = job("read");
  TrainInputs in = open_train_inputs(j.model);
  std::map<std::string, std::string> read;
  for (const auto& [role, name] :
       {std::pair("config", "config.json"), {"tokenizer", "tokenizer.json"}}) {
    const fs::path file = dir_.path() / "m" / name;
    const std::string text = read_text_file(file);
    read[role] = sha256_hex(text);
    replace_file(file, text + "\n");
  }
  Listener quiet;
  ASSERT_EQ(run_train_job(j, std::move(in), quiet).end, JobEnd::finished);
  for (const RunFile& f : read_record(dir_.path() / "runs" / "read").files) {
    if (!read.contains(f.role)) continue;
    EXPECT_EQ(f.sha256, read.at(f.role)) << f.role;
    read.erase(f.role);
  }
  EXPECT_TRUE(read.empty());
}

TEST_F(DurableJob, AnotherBaseModelIsRefused) {
  TrainJob j = saving_job("base");
  Listener events;
  events.stop_after = 2;
  ASSERT_EQ(run(j, events).end, JobEnd::interrupted);
  const fs::path weights = dir_.path() / "m" / "model.safetensors";
  ASSERT_TRUE(fs::exists(weights));
  flip_byte(weights, fs::file_size(weights) - 1);
  j.run.resume = true;
  EXPECT_TRUE(contains(refused(j), "input file: the checkpoint has ")) << refused(j);
}

TEST_F(DurableJob, RunsKeepOutOfEachOthersWay) {
  const TrainJob j = saving_job("busy");
  make_directories(j.run.checkpoint_dir);
  make_directories(j.output.parent_path());
  {
    const auto other = FileLock::take(lock_in(j.run.checkpoint_dir));
    EXPECT_TRUE(contains(refused(j), "has the checkpoints of a run that goes on"));
  }
  {
    const auto other =
        FileLock::take(lock_beside(fs::canonical(j.output.parent_path()) / j.output.filename()));
    EXPECT_TRUE(contains(refused(j), "is being written by another run"));
  }
  EXPECT_EQ(run(j).end, JobEnd::finished);
  EXPECT_EQ(lock_state(lock_in(j.run.checkpoint_dir)), LockState::absent);
  EXPECT_EQ(lock_state(lock_beside(j.output)), LockState::absent);
}

TEST_F(DurableJob, GoodGatesOfAnEarlierRunAreNotEmptied) {
  const TrainJob j = saving_job("good");
  const fs::path kept = j.run.checkpoint_dir / "good" / checkpoint_name(5);
  make_directories(kept.parent_path());
  replace_file(kept, "valuable");
  EXPECT_TRUE(contains(refused(j), "holds checkpoints of an earlier run"));
  EXPECT_EQ(read_text_file(kept), "valuable");
}

TEST_F(DurableJob, AReportReplacesNothingUnasked) {
  TrainJob j = job("report");
  j.run.vram_report = dir_.path() / "report.json";
  replace_file(j.run.vram_report, "mine");
  EXPECT_TRUE(contains(refused(j), "exists: choose another name, or use --force"));
  j.force = true;
  EXPECT_EQ(run(j).end, JobEnd::finished);
  EXPECT_NE(read_text_file(j.run.vram_report), "mine");
}

TEST(DiskSpace, WhatDoesNotFitIsSaidBefore) {
  const TemporaryDirectory dir("space");
  check_space({{"a little", dir.path() / "not" / "there", 1}, {"nothing", dir.path(), 0}});
  try {
    check_space({{"the model", dir.path() / "x", uint64_t(1) << 59},
                 {"checkpoints", dir.path() / "y", uint64_t(1) << 59}});
    FAIL() << "no error";
  } catch (const FormatError& e) {
    EXPECT_TRUE(contains(e.what(), "for the model in ")) << e.what();
    EXPECT_TRUE(contains(e.what(), "for checkpoints in ")) << e.what();
  }
}

}  // namespace
}  // namespace nibble::test

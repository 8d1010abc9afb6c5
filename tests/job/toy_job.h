// SPDX-License-Identifier: MIT
// A small model, three rows, and a job that trains the one on the others for four steps.
#pragma once
#include <gtest/gtest.h>

#include "core/log.h"
#include "job/train_job.h"
#include "support/text.h"
#include "support/toy_dir.h"

namespace nibble::test {

class ToyJobTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::quiet);
    write_toy_directory(dir_.path() / "m");
    replace_file(dir_.path() / "pairs.tsv", "hello\tgood day\nhi\tyes\nwho\tnibble\n");
  }
  void TearDown() override { set_log_level(LogLevel::info); }
  // Without an output and checkpoints that were asked for.
  TrainJob toy_job(const std::string& name) const {
    TrainJob j;
    j.model.model = dir_.path() / "m";
    j.data.train_data = dir_.path() / "pairs.tsv";
    j.batch.seq_len = 64;
    j.train.lr = 1e-3;
    j.train.threads = 1;
    j.steps = 4;
    j.test.max_tokens = 4;
    j.run.folder.runs_dir = dir_.path() / "runs";
    j.run.folder.run_name = name;
    return j;
  }
  static JobResult run(const TrainJob& j, JobEvents& events) {
    return run_train_job(j, open_train_inputs(j.model), events);
  }
  TemporaryDirectory dir_{"toy-job"};
};

}  // namespace nibble::test

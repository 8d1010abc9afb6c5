// SPDX-License-Identifier: MIT
// A training job: model and data in, a trained file out. The whole of it without a command line,
// for whoever wants to train: a command, a page, a library.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "job/gates.h"
#include "job/job_events.h"
#include "job/job_result.h"
#include "job/keep/keep_choices.h"
#include "job/self_test.h"
#include "job/train_choices.h"
#include "job/train_inputs.h"
#include "job/train_run.h"

namespace nibble {

struct TrainJob {
  DataUse use = DataUse::fine_tune;
  std::string name = "train";  // of the run's folder and in its record, with a time before it
  std::string config;          // the effective configuration as TOML, for the record
  std::string command;    // that goes on with it: a shell command but for --resume; may be empty
  std::string program;    // its version, for ranks to compare
  Comm* ranks = nullptr;  // those that train together; null: it is alone
  bool goes_on_by_itself = false;  // the command alone goes on, as that of a chain does

  ModelOptions model;
  DataSettings data;
  BatchSettings batch;
  TrainChoices train;
  KeepChoices keep;
  RunSettings run;
  SelfTestSettings test;
  GateSettings gates;
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  int64_t eval_every = 0;
  std::filesystem::path output;
  bool force = false, write_output = true;

  // Throws UsageError for settings that do not go together or an output that may not be replaced.
  void check() const;
  // The files it reads beside the model's; some may be empty.
  std::vector<std::filesystem::path> other_inputs() const;
};

// Steps the job asks for: `steps`, or `epochs` over the data (one by default): over the samples
// that are taught, or over all that are kept where none is.
int64_t steps_of(const TrainJob& job, int64_t samples);

// Trains, exports, tests.
JobResult run_train_job(const TrainJob& job, TrainInputs inputs, JobEvents& events);

}  // namespace nibble

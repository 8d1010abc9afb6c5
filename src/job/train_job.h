// SPDX-License-Identifier: MIT
// What `train` and `pretrain` share: model and data in, a trained file out.
#pragma once
#include <filesystem>
#include <optional>

#include "apps/command.h"
#include "job/gates.h"
#include "job/self_test.h"
#include "job/train_choices.h"
#include "job/train_run.h"
#include "runtime/output_files.h"

namespace nibble {

struct TrainJobOptions {
  ModelOptions model;
  DataFlags data;
  BatchFlags batch;
  TrainFlags train;
  RunFlags run;
  SelfTestFlags test;
  GateFlags gates;
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  int64_t eval_every = 0;
  std::filesystem::path output;
  bool force = false, write_output = true;

  void visit_fields(Fields& f, DataUse use);
  // Throws UsageError for options that do not go together or an output that may not be replaced.
  void check() const;
};

struct TrainInputs {
  ModelPaths paths;
  Config config;
  std::unique_ptr<TensorSource> source;
  Tokenizer tokenizer;
};
TrainInputs open_train_inputs(const ModelOptions& model);

// Steps the options ask for: --steps, or --epochs over the data (one by default).
int64_t steps_of(const TrainJobOptions& options, int64_t samples);

// Runs, exports, tests. `command` names the run's folder.
ExitCode run_train_job(const TrainJobOptions& options, TrainInputs inputs, DataUse use,
                       const std::string& command, Io& io);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Random tokens through a synthetic or a real model, with checkpoints: whether a machine can train
// at all, and how fast.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "job/job_events.h"
#include "job/job_result.h"
#include "job/train_choices.h"
#include "job/train_run.h"

namespace nibble {

struct SmokeJob {
  std::string config;  // the effective configuration as TOML, for the record
  ModelOptions model;
  // Random weights of the sizes below instead of `model`; unset: unless one is named.
  std::optional<bool> synthetic;
  std::optional<int64_t> in_features, out_features, vocabulary;
  std::optional<int64_t> max_layers;  // of a real model: its first so many
  int64_t epochs = 1, steps_per_epoch = 10;
  BatchSettings batch{.seq_len = 8, .batch_size = 2, .accumulate = 1};
  TrainChoices train;
  RunSettings run;
  bool force = false;  // replaces a vram_report that exists

  SmokeJob() {
    train.lr = 1e-3;
    train.loss = LossKind::scalar;
  }
  bool makes_model() const { return synthetic.value_or(!model.named()); }
  void check() const;  // throws UsageError for settings that do not go together
};

JobResult run_smoke_job(const SmokeJob& job, JobEvents& events);

}  // namespace nibble

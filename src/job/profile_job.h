// SPDX-License-Identifier: MIT
// One training step, phase by phase, and the same step again and again.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "job/train_choices.h"
#include "train/trainer.h"

namespace nibble {

struct ProfileJob {
  ModelOptions model;
  bool random_weights = false;       // of the shape of model.config, made in memory
  std::filesystem::path train_data;  // empty: random tokens
  int64_t sample_index = 0;
  BatchSettings batch;
  TrainChoices train;
  int64_t warmup = 0, repeat = 0;  // steps before the one that is shown, and after it

  ModelPaths paths() const;  // throws UsageError, FormatError
};

struct RepeatedSteps {
  std::vector<double> ms, losses;
  int64_t not_finite = 0;
};

// Told as the profile goes on.
class ProfileWatch {
 public:
  virtual ~ProfileWatch() = default;
  virtual void reached(const std::string& phase) = 0;  // may throw: the profile ends there
  virtual void part(const std::string& name) = 0;      // of the step, inside a phase
  virtual void warming_up(bool on) = 0;                // what comes is not to be shown
  virtual void loaded(TrainState& state) = 0;
  virtual void stepped(TrainState& state, const StepResult& result, double ms) = 0;
  virtual void repeated(Trainer& trainer, std::span<const PackedBatch> micro,
                        const RepeatedSteps& steps) = 0;
};

void run_profile_job(const ProfileJob& job, const ModelPaths& paths, ProfileWatch& watch);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// A job's attempts: one with the weights in memory, and after a collapse perhaps another.
#pragma once
#include "job/export_model.h"
#include "job/job_data.h"
#include "job/keep/teacher_model.h"
#include "job/ranks/rank_words.h"

namespace nibble {

// A job that is ready to train. An attempt has the weights in memory and gives them back.
struct TrainSession {
  const TrainJob& job;
  const TrainInputs& in;
  Backend& backend;
  const TrainSettings& settings;
  const Config& as_trained;  // of in.config, see training_config
  const JobSamples& samples;
  JobBatches& batches;
  const std::optional<TeacherFile>& teacher;
  Gates& gates;
  const Destination* target;  // null: nothing is exported
  RunRecorder& recorder;
  JobEvents& events;
  RankLeader* leader;  // null: it is alone
  JobResult result = {};
  SelfTestReference reference = {};
  std::filesystem::path checkpoints = {};  // that nobody asked for; empty: none

  // `lr_factor`: of the learning rate; after a collapse that of the next attempt.
  RunEnd attempt(double& lr_factor);
  // When all went well: they were for the other case.
  void remove_own_checkpoints();

 private:
  void start(TrainRun& run, Trainer& trainer, double lr_factor);
  void check_disk(const TrainRun& run) const;
  std::string how_to_go_on(const TrainRun& run) const;
  void interrupted(const TrainRun& run);
  void collapsed(const std::string& why);
  // False: the trained weights are not worth it, and the run has been called collapsed.
  bool sound(Trainer& trainer);
  void export_trained(TrainRun& run, Trainer& trainer);
};

}  // namespace nibble

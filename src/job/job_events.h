// SPDX-License-Identifier: MIT
// What a job tells whoever started it, and the one thing it asks. Called on the job's own thread;
// log lines go to core/log.h as everywhere.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "eval/probe_score.h"
#include "runlog/run_metrics.h"

namespace nibble {

class JobEvents {
 public:
  virtual ~JobEvents() = default;

  // Results for people, whole lines.
  virtual void text(std::string_view /*lines*/) {}

  // Before the first step: where the run is recorded, and how many steps it is to have.
  virtual void run_begins(const std::filesystem::path& /*folder*/, int64_t /*steps*/) {}
  // Whether whoever started it is shown every step as it is done: no log lines are needed then.
  virtual bool shows_steps() { return false; }

  // Between these two the job can be asked to stop: the step at hand is finished and saved. Before
  // and after (loading, exporting) it does not ask.
  virtual void steps_begin() {}
  virtual void steps_end() {}
  virtual bool stop_requested() { return false; }

  // Between these two the trained model is written, which nothing should cut in two.
  virtual void export_begin() {}
  virtual void export_end() {}

  virtual void step_done(const StepRecord& /*step*/) {}
  virtual void held_out_done(int64_t /*step*/, double /*loss*/) {}
  virtual void gate_done(int64_t /*step*/, const ProbeScores& /*scores*/) {}
  virtual void checkpoint_saved(const std::filesystem::path& /*file*/) {}
  virtual void model_exported(const std::filesystem::path& /*model*/) {}
};

}  // namespace nibble

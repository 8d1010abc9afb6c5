// SPDX-License-Identifier: MIT
// What a run measured, step by step: the curves of its metrics.jsonl, the scores of its gates
// (probes.jsonl) and its replies (replies.jsonl). Lines that are not what they should be are passed
// over: a run that was killed leaves a torn one.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runlog/run_metrics.h"
#include "runlog/run_record.h"
#include "runlog/thinned_series.h"

namespace nibble {

struct RunSeries {
  ThinnedSeries loss, smoothed, held_out, grad_norm, lr, speed, rss_mib, gpu_mib;
  ThinnedSeries taught, kept;  // parts of the loss, of a run that keeps rows

  void add(const StepRecord& record);
  void add_held_out(int64_t step, double loss);

 private:
  int64_t last_step_ = 0;
};

RunSeries read_series(const std::filesystem::path& run_folder);
std::vector<GateScores> read_gates(const std::filesystem::path& run_folder);

// What a gate found wrong, and what was done.
struct CollapseEvent {
  int64_t step = 0;
  std::string reason, action;
  double lr_factor = kNoValue;  // of the rate from then on
  std::string text() const;     // "step 120: repetition; rollback, rate x 0.5"
};
std::vector<CollapseEvent> read_collapses(const std::filesystem::path& run_folder);

struct Reply {
  int64_t step = 0;
  std::string text;
  bool passed = false;
  std::string failed;  // the rule it broke
};
// One prompt, answered several times in a run.
struct ReplyHistory {
  std::string id, group, prompt;
  Reply first, last;
  bool answered_again() const { return first.step != last.step; }
};
std::vector<ReplyHistory> read_replies(const std::filesystem::path& run_folder);

}  // namespace nibble

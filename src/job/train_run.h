// SPDX-License-Identifier: MIT
// A training run from its first step to its last: batches, log lines, checkpoints, held-out loss,
// the run's folder. What comes before (model, data) and after (export, self-test) is the job's.
#pragma once
#include <chrono>
#include <filesystem>
#include <optional>

#include "core/durable/file_lock.h"
#include "job/batch_source.h"
#include "job/gates.h"
#include "job/job_events.h"
#include "job/ranks/rank_words.h"
#include "runlog/run_folder.h"
#include "runlog/run_recorder.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace nibble {

struct RunSettings {
  std::optional<int64_t> log_every;  // by default 10, and none where every step is shown
  RunFolderOptions folder;
  std::filesystem::path checkpoint_dir;  // empty: in the run's folder
  int64_t save_every = 0;                // steps; 0: by time
  std::optional<double> save_minutes;    // 0: never by time
  std::optional<int64_t> keep;
  bool resume = false;
  std::filesystem::path vram_report;
  std::filesystem::path tensorboard;  // a folder for curves; empty: none

  void check() const;  // throws UsageError for what does not go together
  // Where the checkpoints of a run with this folder are.
  std::filesystem::path checkpoints_in(const std::filesystem::path& run_folder) const {
    return checkpoint_dir.empty() ? run_folder / "checkpoints" : checkpoint_dir;
  }
  // Where nobody asked for checkpoints there are some nevertheless, for what may happen to the
  // run: the newest only, and none when all went well.
  bool asked_for_checkpoints() const { return save_every > 0 || !checkpoint_dir.empty(); }
  double minutes() const { return save_minutes.value_or(save_every > 0 ? 0 : 10); }
  bool saves() const { return save_every > 0 || minutes() > 0; }
  int64_t kept() const { return keep.value_or(asked_for_checkpoints() ? 2 : 1); }
};

// One run at a time has a --checkpoint-dir; nothing where none is named. Throws UsageError when
// another has it.
std::optional<FileLock> lock_checkpoints(const RunSettings& settings);

struct RunPlan {
  int64_t steps = 1;
  int64_t accumulate = 1;
  int64_t eval_every = 0;  // 0: at the end only
  CheckpointBase base{};   // what its checkpoints are models with; empty: they are none
};

enum class RunEnd {
  finished,
  interrupted,
  passed,     // every probe is what it is to be, before the last step
  collapsed,  // collapse() says why; nothing of this step is saved
};

class TrainRun {
 public:
  TrainRun(Trainer& trainer, BatchSource& batches, const RunPlan& plan, const RunSettings& settings,
           RunRecorder& recorder, RunIdentity identity, JobEvents& events);

  // Gates of the run; must outlive it. Before resume().
  void set_gates(Gates* gates) { gates_ = gates; }
  // Of several ranks, likewise; null: it is alone.
  void set_leader(RankLeader* leader) { leader_ = leader; }

  // Continues from the newest checkpoint when the settings say so; says what it does.
  void resume();
  // Begins at step 1 with a share of the rate: another attempt, whose state is the original. Older
  // checkpoints go, and where checkpoints are kept this beginning becomes one.
  void begin_again(double lr_factor);
  // The last good gate before this step (without gates in between: the last good checkpoint), if
  // there is one, and the way back to it, with a share of the rate.
  std::optional<CheckpointFile> good_gate() const;
  void roll_back(const CheckpointFile& to, double lr_factor);
  // Until the last step, or until a stop is requested: then the step is finished and saved.
  RunEnd run(BatchSource* held_out);
  // Mean loss of every held-out token.
  std::optional<double> held_out_loss(BatchSource& held_out, bool to_the_end);  // none: stopped
  void save();
  // What was learned is on disk, whatever becomes of the export.
  void save_before_export();
  // The bytes its checkpoints will take beyond those that are there. `exports`: one at the end.
  uint64_t bytes_to_come(bool exports) const;

  const RunPosition& position() const { return position_; }
  std::filesystem::path checkpoint_directory() const { return checkpoints_; }
  double last_loss() const { return last_loss_; }  // NaN: no step was done
  const std::string& collapse() const { return collapse_; }

 private:
  const RunIdentity& identity();  // waits for the hash of the weights, once
  bool due(const StepResult& r, bool at_end) const;
  void continue_record(const CheckpointFile& from);
  std::optional<std::string> ran_away(const StepResult& r, bool last);
  void record(const StepResult& r, double seconds);
  std::string log_line(const StepResult& r, double seconds) const;
  void save_good();
  void went_back();
  std::filesystem::path good_directory() const { return checkpoints_ / "good"; }

  Trainer& trainer_;
  BatchSource& batches_;
  RunPlan plan_;
  RunSettings settings_;
  RunRecorder& recorder_;
  RunIdentity identity_;
  JobEvents& events_;
  RunPosition position_;
  std::filesystem::path checkpoints_;
  Gates* gates_ = nullptr;
  RankLeader* leader_ = nullptr;
  std::string collapse_;
  LossWatch watch_;  // of a run without gates
  double smoothed_ = 0, last_loss_ = kNoValue;
  int64_t averaged_ = 0;         // losses in smoothed_
  double last_kept_ = kNoValue;  // the last divergence of kept rows
  double seconds_ = 0;           // of the steps of this process
  int64_t done_ = 0;             // steps of this process
  int64_t at_step_ = 0;          // the one that runs
  int64_t saved_ = -1;           // the step of the newest checkpoint
  std::chrono::steady_clock::time_point saved_at_ = std::chrono::steady_clock::now();
  std::vector<PackedBatch> micro_;
};

}  // namespace nibble

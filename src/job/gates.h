// SPDX-License-Identifier: MIT
// Gates of a training run: every so many steps its current weights answer probes. Scores and
// replies go to the run's folder; a run may end when all pass, and what looks like collapse is
// found here, in the losses of a run without probes, too. Nothing of the training is changed by
// asking.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/probe_ask.h"
#include "eval/probe_file.h"
#include "job/collapse.h"
#include "train/inference_view.h"
#include "train/loss_watch.h"
#include "train/trainer.h"

namespace nibble {

struct GateSettings {
  std::filesystem::path probes;
  int64_t every = 0;  // 0: at the start and at the end only
  int64_t most = 0;   // probes of a group, between start and end; 0: all
  std::string min_score;
  bool stop_when_passed = false;
  OnCollapse on_collapse = OnCollapse::automatic;
  int64_t max_restarts = 3;
  double min_retention = 50;  // percent of the baseline
  int64_t replies = 3;        // of each group and language, recorded at each gate

  void check(int64_t save_every) const;  // throws UsageError for what does not go together
};

struct GateVerdict {
  enum class Kind { go_on, passed, collapsed };
  Kind kind = Kind::go_on;
  std::string reason;    // of a collapse
  bool certain = false;  // of a collapse: nothing else looks like that
  bool good = false;  // a gate, and nothing looked like collapse; without gates in between, losses
                      // that do not
};

class Gates {
 public:
  // Reads the probe file. Throws FormatError, UsageError.
  Gates(const GateSettings& settings, const Tokenizer& tokenizer, const ChatTemplate& style);
  ~Gates();

  const GateSettings& settings() const { return settings_; }
  // SHA-256 of the probe file as it was read; empty: there is none.
  std::string probes_hash() const { return file_ ? file_->hash : ""; }
  const ProbeFile* probes() const { return file_ ? &*file_ : nullptr; }
  // Memory the gates of a run with these settings take beside the InferenceView's.
  uint64_t bytes(const Backend& backend, const Config& config, const TrainSettings& settings) const;

  // Before the first step of a run or of a new attempt: the weights to ask. Everything is allocated
  // and, where there is no baseline yet, asked for the first time.
  void begin(TrainState& state, int64_t step, const std::filesystem::path& folder);
  void end();  // gives the memory back; the state may go

  // A collapse that is to be ignored is told and recorded here, and the verdict is another.
  GateVerdict after_step(const StepResult& r, bool last);
  // The loss of the trained weights, before they are exported.
  GateVerdict after_training(int64_t step, double loss);

  // What a checkpoint keeps, and the way back. A damaged note is a FormatError.
  std::string note() const;
  void restore(const std::string& note);
  // After a collapse: another attempt, which begins as `note` says; empty: at the beginning.
  void next_attempt(const std::string& note);
  int64_t attempt() const { return memory_.attempt; }
  // What a collapse leads to now: stop, when no attempt is left or nothing was asked for.
  OnCollapse action() const;
  // `lr_factor`: of the learning rate from then on, where that changes.
  void record_collapse(int64_t step, const std::string& reason, OnCollapse action,
                       std::optional<double> lr_factor) const;

  // Scores of these probes before the training are known, measured or restored.
  bool has_baseline() const { return memory_.baseline; }
  bool has_passed() const { return memory_.passed; }
  // The scores of the gate at this step; null: there was none.
  const ProbeScores* scores_at(int64_t step) const {
    return last_ && last_->step == step ? &last_->scores : nullptr;
  }
  // The scores of the last gate beside those of the same probes before the training, as a table;
  // empty without probes, and where none was asked since a run was resumed.
  std::string table() const;
  // The same for a run that did not come to its end: a line that says which gate it was, the table.
  std::string last_gate() const;
  // What is below --min-score at the last gate; empty also where nothing was asked for.
  const std::vector<std::string>& low() const { return low_; }

 private:
  struct Asked {
    std::vector<ProbeResult> results;
    ProbeScores scores;
    ReplySigns signs;
    double seconds = 0;
  };
  struct LastGate {
    int64_t step = 0, attempt = 0;
    ProbeScores scores;
    const ProbeScores* before = nullptr;  // the same probes in memory_; null: it is the baseline
  };
  // All that outlives an attempt or goes into a checkpoint.
  struct Memory {
    int64_t attempt = 0;
    int64_t alarms = 0;  // gates in a row that looked like collapse
    bool passed = false;
    bool baseline = false;
    ProbeScores all, some;  // of the baseline: of every probe, and of those asked in between
    ReplySigns all_signs, some_signs;
    LossWatch watch;
  };
  static EngineOptions engine_options(const TrainSettings& settings, const Backend& backend);
  Asked ask(const std::vector<const Probe*>& probes);
  GateVerdict gate(int64_t step, bool last);
  GateVerdict unless_ignored(int64_t step, GateVerdict v, bool& told) const;
  void record(int64_t step, const Asked& asked, const std::vector<std::string>& low,
              const std::string& alarm) const;
  void append(const char* file, const std::vector<std::string>& lines) const;

  GateSettings settings_;
  Tokenizer tokenizer_;
  ProbeAskOptions ask_;
  std::optional<ProbeFile> file_;
  std::vector<const Probe*> all_, some_;
  std::vector<MinScore> wanted_;
  std::optional<IdentityMarks> marks_;
  Memory memory_;
  double guessing_ = std::numeric_limits<double>::infinity();  // loss of who knows nothing
  struct {
    bool of_losses = false, of_replies = false;
  } told_;  // collapses that are ignored

  std::filesystem::path folder_;
  std::unique_ptr<InferenceView> view_;
  std::unique_ptr<BatchEngine> engine_;
  std::optional<LastGate> last_;
  std::vector<std::string> low_;
};

}  // namespace nibble

// SPDX-License-Identifier: MIT
// run.json of a run: everything that is worth knowing about it later, in one file (docs/runs.md has
// the schema). Written at the start, on events, and at the end; status.json is the fresher one for
// how far a run is.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runlog/run_status.h"

namespace nibble {

// A file the run read or wrote. Roles: weights, config, tokenizer, train-data, eval-data, probes;
// output. `sha256` is empty while it is not known.
struct RunFile {
  std::string role, path;
  uint64_t bytes = 0;
  std::string sha256;
};

// Where a run stands in a chain of stages (run_chain.h).
struct ChainPlace {
  std::string chain, stage_name;
  int stage = 0, stages = 0;  // counted from 1
};

struct StepLoss {
  int64_t step = 0;
  double loss = kNoValue;
};

// What all steps come to.
struct RunTotals {
  double first_loss = kNoValue;
  StepLoss lowest;                    // of the losses as they were
  double lowest_smoothed = kNoValue;  // of their mean over about twenty steps
  StepLoss largest_grad;              // the largest norm of a gradient before it was clipped
  double seconds = 0;                 // of the steps themselves
  int64_t tokens = 0, response_tokens = 0, skipped = 0;
  StepLoss first_held_out, best_held_out;
  // Of a run that keeps rows: the last of each part of the loss, and the largest divergence.
  double taught_loss = kNoValue, kept_loss = kNoValue, largest_kept = kNoValue;
  int64_t kept_tokens = 0;

  void add(const StepRecord& r);
  void add_held_out(int64_t step, double loss);
};

struct GateScore {
  std::string group;
  int64_t passed = 0, total = 0;
  std::string languages = {};  // "en 3/4, zh 4/4", where there are several
};
struct GateScores {
  int64_t step = 0;
  std::vector<GateScore> groups;
};

// What the exported file said for itself.
struct SelfTestRecord {
  bool passed = false;
  std::string problem;                                            // what was wrong
  double loss_in_training = kNoValue, loss_from_file = kNoValue;  // of the first sample
  std::string prompt, reply;                                      // empty: it was not asked
};

struct RunMemory {
  uint64_t peak_rss_bytes = 0;
  int64_t peak_gpu_mib = 0;                              // of this process; 0: no GPU took part
  std::vector<std::pair<std::string, uint64_t>> arenas;  // their peaks
};

struct RunRecord {
  std::string name;  // of its folder
  std::string command_line, directory, version, commit, device;
  RunStatus status;
  bool gone = false;  // it says it is running, and its process is not there
  std::optional<int> exit_code;
  std::string ended_utc;
  std::vector<std::pair<std::string, std::string>> config;  // key and value, as in config.toml
  std::vector<RunFile> files;
  RunTotals totals;
  RunMemory memory;
  std::vector<GateScores> gates;       // the first and the last
  std::vector<std::string> collapses;  // what gates found wrong, and what was done
  std::vector<std::string> warnings;   // what was said to whoever started it
  std::optional<SelfTestRecord> self_test;
  std::string continues;     // the run it goes on with, by name
  int64_t continued_at = 0;  // the step it does so after
  std::optional<ChainPlace> chain;
  bool pinned = false;

  // "nibble 0.1.0 (commit abc1234) on cpu"; without what is not known
  std::string made_by() const;
  std::string state_name() const;  // as run_state_name, or "gone"
  bool ended_well() const { return status.state == RunState::finished; }
  double seconds() const;                           // from start to end; NaN: not known
  std::string setting(std::string_view key) const;  // of the configuration, unquoted; "" when unset
  std::vector<const RunFile*> with_role(std::string_view role) const;
};

// Lines "key = value" of a configuration as Fields::to_toml writes it.
std::vector<std::pair<std::string, std::string>> config_lines(const std::string& toml);
std::string unquoted(const std::string& toml_value);  // a string's text; anything else as it is

std::string record_json(const RunRecord& record);
// The record of a run's folder, with the state of its status.json; a folder without a run.json
// gives what its other files say. Throws FormatError for what is not a run.
RunRecord read_record(const std::filesystem::path& folder);
// All of a folder of runs, the oldest first. What cannot be read is left out.
std::vector<RunRecord> read_records(const std::filesystem::path& base);

// A pinned run is never pruned. The mark is an empty file in its folder.
constexpr const char* kPinFile = "pinned";

}  // namespace nibble

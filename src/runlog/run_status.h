// SPDX-License-Identifier: MIT
// status.json of a run: how far it is, for whoever watches from another process.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "guard/process_tree.h"
#include "runlog/run_metrics.h"

namespace nibble {

// collapsed: its losses or replies said that the model fell apart, and it was ended for that.
enum class RunState { running, finished, failed, interrupted, collapsed };
std::string_view run_state_name(RunState state);
std::optional<RunState> parse_run_state(std::string_view name);

struct RunStatus {
  RunState state = RunState::running;
  std::string command;  // "train"
  std::string message;  // what went wrong, when something did
  pid_t pid = 0;
  uint64_t pid_start = 0;  // with pid: the process, and no later one of that number
  std::string host;
  std::string started_utc, updated_utc;
  int64_t steps = 0;  // of the whole training; 0: not known
  StepRecord last;    // the last step
  int64_t held_out_step = 0;
  double held_out_loss = kNoValue;
  double eta_seconds = kNoValue;         // to the last step
  std::string checkpoint;                // the newest
  std::string checkpoint_model, output;  // what --model takes: of that checkpoint, of the export
};

std::string status_json(const RunStatus& status);
RunStatus read_status(const std::filesystem::path& run_folder);  // throws FormatError

// The fields that tell this process from others.
void set_own_process(RunStatus& status);

// The process that wrote it, while it is there and on this host.
std::optional<ProcessInfo> process_of(const RunStatus& status);

enum class ProcessState { alive, gone, on_another_host };
// Of the run or chain in `folder`, by the lock its process holds there; by the number of the
// process only where an older version wrote the folder, which knew no locks.
ProcessState process_state(const std::filesystem::path& folder, const RunStatus& status);

}  // namespace nibble

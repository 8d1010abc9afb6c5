// SPDX-License-Identifier: MIT
// Writes a run's folder while it goes on:
//   config.toml    the effective configuration; --run-config takes it
//   command.txt    the command line
//   metrics.jsonl  one line a step
//   status.json    how far it is (run_status.h), anew at most twice a second, and as rarely as
//                  it takes to cost no more than a hundredth of the time
//   run.json       the record (run_record.h)
//   memory.json    memory by phase, arenas
//   loss.svg, grad.svg, lr.svg, speed.svg, memory.svg, gates.svg
//   report.html    at the end (run_report.h)
// A disk that is full gives one warning: a training is worth more than its record.
#pragma once
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/durable/file_lock.h"
#include "core/durable/last_words.h"
#include "core/error.h"
#include "core/warnings.h"
#include "runlog/memory_report.h"
#include "runlog/run_hashes.h"
#include "runlog/run_metrics.h"
#include "runlog/run_record.h"
#include "runlog/run_series.h"
#include "runlog/tensorboard/event_file.h"

namespace nibble {

class RunRecorder {
 public:
  // `folder` from create_run_folder; `config` is the effective configuration, as TOML. Throws
  // FormatError.
  RunRecorder(std::filesystem::path folder, std::string command, const std::string& config,
              int64_t steps, MemorySource memory = {});
  // A run that did not finish() has failed; one that had not begun to train leaves no folder.
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  const std::filesystem::path& directory() const { return folder_; }
  void set_steps_per_epoch(int64_t steps) { steps_per_epoch_ = steps; }  // 0: one epoch
  // Curves for TensorBoard go to this folder. Throws FormatError.
  void also_write_events_to(const std::filesystem::path& folder);
  // The memory report goes to this file, too.
  void also_report_memory_to(std::filesystem::path file) { extra_report_ = std::move(file); }

  // What it says from now on and has said is in the record. Must outlive the recorder.
  void record_warnings_of(const WarningCollector& warnings) { warnings_ = &warnings; }
  // Goes on with a run that was saved after `step`: its curve up to there, and what it came to, are
  // the beginning of this one's; its scores only where `same_probes` are asked, since
  // those of other questions are not the beginning of this curve.
  void continue_from(const std::filesystem::path& folder, int64_t step, bool same_probes);
  const StepRecord& last_step() const { return status_.last; }
  uint64_t gpu_bytes() const;  // in use by this run, as last seen; 0: no GPU takes part

  void device(std::string name);  // as the backend calls itself
  // A file the run reads, hashed while it goes on (roles: run_record.h). An empty path is none; of
  // a directory, the weights in it.
  void input(std::string_view role, const std::filesystem::path& path);
  // One that is open: what is hashed is what is read, whatever has its name by then.
  void input(std::string_view role, const InputFile& file);
  // One that was read, and whose hash is known from that.
  void input(std::string_view role, const std::filesystem::path& path, std::string sha256);
  // Of all files of a role together; waits for it. Empty where one cannot be known.
  std::string hash_of(std::string_view role);
  const RunRecord& record() const { return record_; }

  void step(const StepRecord& record);
  void held_out(int64_t step, double loss);
  // Percent of the probes that passed, by group; for the curves.
  void gate(int64_t step, const std::vector<std::pair<std::string, double>>& percents);
  void phase(std::string_view name, int64_t step);  // a memory sample
  void arenas(const std::vector<Arena*>& arenas) { memory_.set_arenas(arenas); }
  // The newest checkpoint; `model`: what --model takes to try it, when it can be tried.
  void checkpoint(const std::filesystem::path& path, const std::filesystem::path& model = {});
  void checkpoints_removed();
  void exported(const std::filesystem::path& model);
  void self_test(SelfTestRecord result);
  // `exit_code`: of the process; by default 1 for a run that failed or collapsed, 128 and the
  // signal for one that a signal interrupted, 0 otherwise.
  void finish(RunState state, std::string_view message = {},
              std::optional<ExitCode> exit_code = {});

 private:
  void attempt(const std::function<void()>& write);
  void add_files(std::string_view role, const std::filesystem::path& path);
  RunFile& add_file(std::string_view role, const std::filesystem::path& file);
  void write_status();
  void write_in_place(const std::string& status);
  void write_record();
  void write_plots_and_memory();
  void finish(RunState state, std::string_view message, ExitCode exit_code, double hash_seconds);

  std::filesystem::path folder_, extra_report_;
  FileLock lock_;  // says that the run goes on
  LastWords last_words_;
  int64_t steps_per_epoch_ = 0;
  RunRecord record_;
  RunStatus& status_ = record_.status;
  MemoryReport memory_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<EventFile> events_;
  RunSeries series_;
  BackgroundHashes hashes_;
  double step_seconds_ = 0;  // of late, everything between two steps included
  std::chrono::steady_clock::time_point last_step_, next_status_{}, last_plots_,
      next_noted_checkpoint_{};
  const WarningCollector* warnings_ = nullptr;
  bool finished_ = false, warned_ = false, stepped_ = false;
};

// The runs a chain starts say so in their records, from set_chain_place(place) on.
void set_chain_place(std::optional<ChainPlace> place);

// A run that an exception ended is recorded before anyone knows the message. Whoever catches it
// says it here: the run of this thread that failed last gets it. forget_failed_run(): there was
// none so far.
void explain_failed_run(ExitCode code, const std::string& message);
void forget_failed_run();

// The guard says in this variable where runs below it write down their folders, a line each, so
// that it can say of those it ends why they ended.
constexpr const char* kGuardedRunsVariable = "NIBBLE_GUARDED_RUNS";
// Of a run whose process was killed: it was interrupted, by what `message` says.
void explain_killed_run(const std::filesystem::path& folder, ExitCode code,
                        const std::string& message);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Writes a run's folder while it goes on:
//   config.toml    the effective configuration; --run-config takes it
//   command.txt    the command line
//   metrics.jsonl  one line a step
//   status.json    how far it is (run_status.h), anew at most twice a second
//   memory.json    memory by phase, arenas
//   loss.svg, lr.svg, speed.svg, memory.svg
// A disk that is full gives one warning: a training is worth more than its record.
#pragma once
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "apps/memory_report.h"
#include "apps/run_metrics.h"
#include "apps/run_status.h"
#include "apps/thinned_series.h"

namespace nibble {

class RunRecorder {
 public:
  // `folder` from create_run_folder; `config` is Io::config. Throws FormatError.
  RunRecorder(std::filesystem::path folder, std::string command, const std::string& config,
              int64_t steps, MemorySource memory = MemorySource::host);
  ~RunRecorder();  // a run that did not finish() has failed
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  const std::filesystem::path& directory() const { return folder_; }
  void set_steps_per_epoch(int64_t steps) { steps_per_epoch_ = steps; }  // 0: one epoch
  // The memory report goes to this file, too.
  void also_report_memory_to(std::filesystem::path file) { extra_report_ = std::move(file); }

  void step(const StepRecord& record);
  void held_out(int64_t step, double loss);
  void phase(std::string_view name, int64_t step);  // a memory sample
  void arenas(TrainArenas& arenas) { memory_.set_arenas(arenas); }
  // The newest checkpoint; `model`: what --model takes to try it, when it can be tried.
  void checkpoint(const std::filesystem::path& path, const std::filesystem::path& model = {});
  void exported(const std::filesystem::path& model);
  void finish(RunState state, std::string_view message = {});

 private:
  void attempt(const std::function<void()>& write);
  void write_status();
  void write_plots() const;

  std::filesystem::path folder_, extra_report_;
  int64_t steps_per_epoch_ = 0;
  RunStatus status_;
  MemoryReport memory_;
  std::unique_ptr<MetricsWriter> metrics_;
  ThinnedSeries loss_, smoothed_, held_out_, lr_, speed_, rss_;
  double step_seconds_ = 0;  // of late, everything between two steps included
  std::chrono::steady_clock::time_point last_step_, last_status_{}, last_plots_;
  bool finished_ = false, warned_ = false;
};

}  // namespace nibble

// SPDX-License-Identifier: MIT
// A run as text, for `nibble runs watch`.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runlog/run_metrics.h"
#include "runlog/run_status.h"
#include "runlog/thinned_series.h"

namespace nibble {

// What a watcher knows: the status, and the steps read so far.
class RunView {
 public:
  explicit RunView(std::filesystem::path folder);
  void refresh();  // throws FormatError

  const RunStatus& status() const { return status_; }
  bool running() const;  // as far as can be told
  bool gone() const;     // the process ended without a word

  std::vector<std::string> lines() const;  // the whole picture
  std::string line() const;                // the last step, in one line

 private:
  std::string state_text() const;
  std::string progress_text() const;
  std::string try_text() const;

  std::filesystem::path folder_;
  MetricsReader metrics_;
  RunStatus status_;
  ProcessState process_ = ProcessState::alive;
  std::vector<StepRecord> recent_;
  ThinnedSeries loss_;
};

// Bars of one character each, `width` of them or fewer; each is the mean of its part of `values`.
// Values that are not finite are passed over.
std::string sparkline(std::span<const double> values, size_t width);

}  // namespace nibble

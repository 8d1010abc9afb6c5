// SPDX-License-Identifier: MIT
// The charts of a run, for its folder, its report and comparisons.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runlog/run_series.h"
#include "runlog/svg_plot.h"

namespace nibble {

struct NamedPlot {
  std::string file;  // "loss.svg"
  Plot plot;
};

// Loss, gradient norm, learning rate, speed, memory; gate scores when there are some. Titles end
// with " of NAME" unless the name is empty.
std::vector<NamedPlot> run_plots(const RunSeries& series, const std::vector<GateScores>& gates,
                                 const std::string& run_name);
void write_plots(const std::filesystem::path& folder, const std::vector<NamedPlot>& plots);

// The losses of several runs over each other: smoothed, and held out where there are any.
Plot compare_losses(const std::vector<std::pair<std::string, RunSeries>>& runs);

}  // namespace nibble

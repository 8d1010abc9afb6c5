// SPDX-License-Identifier: MIT
// report.html of a run: one page that needs nothing but itself. No request leaves it, and whatever
// a model may have replied is shown as text.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runlog/run_lineage.h"
#include "runlog/run_record.h"
#include "runlog/run_series.h"

namespace nibble {

struct ReportContent {
  RunRecord record;
  RunSeries series;
  std::vector<GateScores> gates;
  std::vector<ReplyHistory> replies;
  Lineage lineage;
};

std::string report_html(const ReportContent& content);

// Reads all of it from a run's folder; lineage from the runs beside it. Throws FormatError.
ReportContent read_report(const std::filesystem::path& run_folder);
// report.html of the folder, anew.
void write_report(const std::filesystem::path& run_folder);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Runs as text: a table of many, one in full, several side by side, a log in Markdown.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runlog/run_lineage.h"
#include "runlog/run_record.h"
#include "runlog/run_series.h"

namespace nibble {

std::string runs_table(const std::vector<RunRecord>& runs);
std::string run_text(const RunRecord& run, const Lineage& lineage,
                     const std::vector<ReplyHistory>& replies);

// One row of a comparison: what each run has there.
struct ComparedRow {
  std::string name;
  std::vector<std::string> values;
  bool differs() const;
};
struct Comparison {
  std::vector<std::string> runs;
  std::vector<ComparedRow> results;   // all of them
  std::vector<ComparedRow> settings;  // those that differ
  std::vector<ComparedRow> files;     // inputs by role and hash, those that differ
};
Comparison compare_runs(const std::vector<RunRecord>& runs);
std::string comparison_text(const Comparison& comparison);
std::string comparison_json(const Comparison& comparison);

// One section of a log (docs/runs.md), with the replies to at most `most_replies` prompts.
std::string run_markdown(const RunRecord& run, const Lineage& lineage,
                         const std::vector<ReplyHistory>& replies, size_t most_replies = 24);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// The scores of probes for people and for machines.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "eval/probe_score.h"

namespace nibble {

// Lines of group, language, passed, total, score; with `before` also its score and the change.
std::string score_table(const ProbeScores& scores, const ProbeScores* before = nullptr);

// {"groups": [{"name", "passed", "total", "percent", "languages": {"zh": {...}}}], "passed",
//  "total", "percent"}
nlohmann::ordered_json scores_json(const ProbeScores& scores);
// The way back; throws FormatError that begins with `where`.
ProbeScores scores_from_json(const nlohmann::json& j, const std::string& where);

struct ProbeReportInfo {
  std::string probes, hash;  // name of the set, hash of its file
  std::string model, backend, rules;
  bool passed = true;
  std::vector<std::string> low;  // scores below their thresholds
  double seconds = 0;
};
nlohmann::ordered_json result_json(const ProbeResult& result);
// The conversation with the reply at its end, as "messages" of training data are written.
nlohmann::ordered_json turns_json(const ProbeResult& result);
void write_probe_report(const std::filesystem::path& file, const ProbeReportInfo& info,
                        const ProbeScores& scores, std::span<const ProbeResult> results);

// The passed ones as training data: a line {"messages": [...]} each, the reply as the last message.
std::string passed_as_data(std::span<const ProbeResult> results);

struct ProbeBaseline {
  ProbeScores scores;
  std::string model, hash;
  std::map<std::string, std::string> replies = {};  // by id: JSON with "turns" and "passed"
};
ProbeBaseline read_probe_report(const std::filesystem::path& file);  // throws FormatError

// Some conversations of every group, long ones first, as they are now and as they were.
nlohmann::json dialogues_json(std::span<const ProbeResult> results, const ProbeBaseline* before,
                              int64_t most);

}  // namespace nibble

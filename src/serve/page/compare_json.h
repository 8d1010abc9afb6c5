// SPDX-License-Identifier: MIT
// Curves and comparisons of runs, small enough to be asked for every second.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace nibble {

// {"loss": {"x": [...], "y": [...]}, ...} of a run's metrics.jsonl, thinned.
nlohmann::ordered_json metrics_json(const std::filesystem::path& run);
// Scores of the gates: [{"step", "scores": {group: {"passed", "total"}}}].
nlohmann::ordered_json gate_scores_json(const std::filesystem::path& run);
// What `runs compare --json` says of two, and the losses of both.
nlohmann::ordered_json compare_json(const std::filesystem::path& one,
                                    const std::filesystem::path& other);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Runs out of the way: moved to a trash folder beside them, never deleted, and written down.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runlog/diary/failed_weights.h"
#include "runlog/run_record.h"

namespace nibble {

struct PruneRules {
  std::vector<std::string> names;  // these; empty: all that the rules below leave over
  std::optional<double> older_than_days;
  std::optional<int64_t> keep;  // the newest of what the other rules choose stay
  bool failed_only = false;     // failed, interrupted or gone
};

// Which of `runs` (the oldest first) would go: never one that is running or pinned. Throws
// UsageError for a named one that may not go.
std::vector<std::string> choose_for_pruning(const std::vector<RunRecord>& runs,
                                            const PruneRules& rules);

// Folders of chains in `base` that have nothing left when the runs of `names` go: each had runs,
// all of them go or have gone, and the chain is not running. With PruneRules::names only those that
// lose a run now.
std::vector<std::string> chains_without_runs(const std::filesystem::path& base,
                                             const std::vector<std::string>& names,
                                             const PruneRules& rules);

// Moves runs and chains to <base>/.trash/<time>/, and of `weights` those that do not stay, and adds
// a line for each to <base>/prune.jsonl. A folder beside the runs, because a rename on one disk
// is whole or not at all however large they are; a desktop's trash lies on the disk of the home and
// empties itself. Returns that folder. Throws FormatError.
std::filesystem::path move_to_trash(const std::filesystem::path& base,
                                    const std::vector<std::string>& names,
                                    const std::vector<std::string>& chains,
                                    const std::string& reason,
                                    const std::vector<FailedWeights>& weights = {});

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Runs for programs: what `nibble runs --json` prints and the page of `nibble serve` reads.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "runlog/run_lineage.h"
#include "runlog/run_record.h"
#include "runlog/run_series.h"

namespace nibble {

// The record with its state as it is now, whether it is pinned, and where it lies.
nlohmann::ordered_json full_json(const RunRecord& run, const std::filesystem::path& folder);
nlohmann::ordered_json lineage_json(const Lineage& lineage);
nlohmann::ordered_json replies_json(const std::vector<ReplyHistory>& replies);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// What `nibble runs` does beside showing runs: the diary, the trash, talking to one; and what these
// share with the rest of the command.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/options/runs_options.h"
#include "runlog/run_record.h"
#include "runtime/output_files.h"

namespace nibble {

ExitCode export_runs(const RunsOptions& o, Io& io);
ExitCode note_run(const RunsOptions& o, Io& io);
ExitCode show_inventory(const RunsOptions& o, Io& io);
ExitCode prune_runs(const RunsOptions& o, Io& io);
ExitCode try_run(const RunsOptions& o, Io& io);

std::string runs_text(size_t n);  // "1 run"
std::filesystem::path base_of(const std::filesystem::path& run_folder);
std::string dumped(const nlohmann::ordered_json& j);
// The runs the options name, or all that their filters leave, the oldest first.
std::vector<RunRecord> chosen_runs(const RunsOptions& o);
Overwrite overwrite_of(const RunsOptions& o);

}  // namespace nibble

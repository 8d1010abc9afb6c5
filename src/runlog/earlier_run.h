// SPDX-License-Identifier: MIT
// The run a resumed one goes on with: where it is recorded, and what it wrote down.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "runlog/run_metrics.h"

namespace nibble {

// The folder of the run that saved a checkpoint: the one the checkpoint lies in, or the newest in
// `runs_dir` that names it or one beside it. Never `except`, the run that asks. Empty: none is
// known.
std::filesystem::path run_of_checkpoint(const std::filesystem::path& checkpoint,
                                        const std::filesystem::path& runs_dir,
                                        const std::filesystem::path& except);

// The lines of one of its files (metrics.jsonl, probes.jsonl, replies.jsonl) that belong to steps
// up to `step`, whole and in their order.
void for_each_line_up_to(const std::filesystem::path& file, int64_t step,
                         const std::function<void(const std::string& line)>& use);

}  // namespace nibble

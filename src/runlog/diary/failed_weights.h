// SPDX-License-Identifier: MIT
// The weights that runs which failed exported to a place outside of their folders: they go to the
// trash with the run, unless they are another file by now or another run was trained from them.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runlog/run_record.h"

namespace nibble {

struct FailedWeights {
  std::string run;
  std::filesystem::path path;                // what the run exported: a file or a directory
  std::vector<std::filesystem::path> files;  // what of it is moved; empty: nothing
  std::string stays;                         // why it is not moved; empty: it is
};
// Of the runs `chosen` among `all` (those in `base`). Reads the files to see whether they are still
// what was written.
std::vector<FailedWeights> failed_weights(const std::filesystem::path& base,
                                          const std::vector<RunRecord>& all,
                                          const std::vector<std::string>& chosen);
// Moves them into `trash`, or, when that is on another disk, into .nibble-trash beside them:
// nothing is copied and nothing deleted. Writes it down in the run's notes and in prune.jsonl.
// Returns where they are. Throws FormatError.
std::filesystem::path move_weights(const std::filesystem::path& base, const FailedWeights& weights,
                                   const std::filesystem::path& trash, const std::string& reason);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// prune.jsonl of a folder of runs: what was moved to the trash, when, why and where to.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace nibble {

struct PruneLine {
  std::string time_utc, what, name, to, reason;  // what: run, chain or weights
  std::string run = {};                          // of weights: which run wrote them
};
void add_prune_line(const std::filesystem::path& base, const PruneLine& line);
// The oldest first; what cannot be read is left out.
std::vector<PruneLine> read_prune_log(const std::filesystem::path& base);

}  // namespace nibble

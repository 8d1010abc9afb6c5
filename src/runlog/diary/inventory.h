// SPDX-License-Identifier: MIT
// The weight files a folder of runs knows: what each is, what it was made from, what it is good
// for, how it scored, and where it is now.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runlog/run_record.h"

namespace nibble {

struct InventoryRow {
  std::string path, what;       // "train run stage-a"; "given": no run here wrote it
  std::string made_from, data;  // of a run's: its inputs
  std::string good_for, scores;
  std::string where;  // there, missing, changed, or in the trash and where that is
  uint64_t bytes = 0;
  std::string sha256;
};
// Those that were given first, then what runs exported, the oldest first.
std::vector<InventoryRow> inventory(const std::filesystem::path& base,
                                    const std::vector<RunRecord>& runs);
std::string inventory_markdown(const std::vector<InventoryRow>& rows);
std::string inventory_json(const std::vector<InventoryRow>& rows);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// The diary of a folder of runs, in Markdown: for each run that ended its idea (the notes), method
// (command, inputs, settings) and result (state, losses, scores, replies); then what was noted
// later, and what was pruned. It only ever grows, and nothing is written into it twice.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runlog/run_record.h"

namespace nibble {

struct DiaryEntry {
  std::string key;   // a comment of Markdown that tells it from all others; part of `text`
  std::string text;  // may hold the keys of entries that it makes superfluous
};
// Of `runs` (those in `base`), the oldest first, and of the notes and prunes that came later. A run
// that goes on has none yet.
std::vector<DiaryEntry> diary_entries(const std::filesystem::path& base,
                                      const std::vector<RunRecord>& runs);
// Appends those whose key is not in the file; a new file begins with a title. Returns how many.
size_t append_to_diary(const std::filesystem::path& file, const std::vector<DiaryEntry>& entries);

}  // namespace nibble

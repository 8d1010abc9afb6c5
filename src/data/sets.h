// SPDX-License-Identifier: MIT
// Operations on data files: mixing, removing duplicates, splitting off a held-out part. All files
// of one operation have one format (TSV, or JSONL; JSON and CSV become lines of JSONL); lines are
// kept as they are.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/read/data_reader.h"

namespace nibble {

struct MixPart {
  std::filesystem::path file;
  double share = 1;  // relative to the other parts
};
// "FILE" or "FILE:SHARE". Throws UsageError.
MixPart parse_mix_part(const std::string& text);
// `size` lines, each file's share of them exact; a file that is too short is used several times
// over, each line equally often but for one. 0: as many as the files have together. Shuffled.
std::string mix_files(const std::vector<MixPart>& parts, int64_t size, uint64_t seed,
                      ExtraKeys extra = ExtraKeys::count);

enum class SameBy { line, prompt };  // prompt: letters and digits of what is asked
struct DedupResult {
  std::string text;
  int64_t kept = 0, dropped = 0;
};
// The first of equal lines stays.
DedupResult dedup_files(const std::vector<std::filesystem::path>& files, SameBy same,
                        ExtraKeys extra = ExtraKeys::count);

struct SplitResult {
  std::string train, held_out;
  int64_t train_lines = 0, held_out_lines = 0;
};
// Lines with the same prompt (letters and digits) stay on one side; which one depends on the
// prompt and the seed alone, so a file that grows keeps its split.
SplitResult split_file(const std::filesystem::path& file, double held_out_share, uint64_t seed,
                       ExtraKeys extra = ExtraKeys::count);

}  // namespace nibble

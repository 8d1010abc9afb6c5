// SPDX-License-Identifier: MIT
// How much of a probe file stands in training data.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace nibble {

struct OverlapCounts {
  int64_t probes = 0;
  int64_t exact = 0;       // the prompt is a training prompt, byte for byte
  int64_t normalised = 0;  // the same letters and digits
  // Sums over probes of the share of their prompts' n-grams (characters of Chinese, words and
  // digits otherwise) that stand in any training text.
  double grams4 = 0, grams8 = 0;
};
struct OverlapReport {
  int64_t training_lines = 0;
  std::map<std::string, OverlapCounts> groups;  // and "all"
  std::vector<std::string> found;               // ids of probes with an equal prompt
};
// Throws FormatError.
OverlapReport measure_overlap(const std::vector<std::filesystem::path>& training,
                              const std::filesystem::path& probes);

}  // namespace nibble

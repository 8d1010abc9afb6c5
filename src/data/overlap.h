// SPDX-License-Identifier: MIT
// How much of a probe file stands in training data.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/read/data_reader.h"

namespace nibble {

struct OverlapProbe {
  std::string id, group;
  std::vector<std::string> asked;  // the user's turns
};
// A mean over the probes long enough to have n-grams: the others say nothing.
struct GramShare {
  int64_t probes = 0;
  double sum = 0;  // of the shares that stand in any training text
  double mean() const { return probes > 0 ? sum / double(probes) : 0; }
};
struct OverlapCounts {
  int64_t probes = 0;
  int64_t exact = 0;       // the prompt stands in the training data, byte for byte
  int64_t normalised = 0;  // or its letters and digits do
  // N-grams of the prompts: characters of Chinese, words and digits otherwise.
  GramShare grams4, grams8;
};
struct OverlapReport {
  int64_t training_lines = 0;
  std::map<std::string, OverlapCounts> groups;  // and "all"
  std::vector<std::string> found;               // ids of probes with an equal prompt
};
// A probe's prompt, that is, all of its user turns, is compared with as many user turns that follow
// each other anywhere in a training conversation; a prompt of one turn with {"text": ...} documents
// and their lines, too. Throws FormatError.
OverlapReport measure_overlap(const std::vector<std::filesystem::path>& training,
                              const std::vector<OverlapProbe>& probes,
                              ExtraKeys extra = ExtraKeys::count);

}  // namespace nibble

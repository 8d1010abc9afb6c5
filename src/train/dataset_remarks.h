// SPDX-License-Identifier: MIT
// What is odd about data, though nothing is wrong with any of its lines.
#pragma once
#include <cstdint>
#include <span>

#include "train/dataset.h"

namespace nibble {

// How many samples of `held_out` are samples of `taught`, token for token.
int64_t shared_samples(const Dataset& taught, const Dataset& held_out);

// Samples that begin with the same tokens and are then taught different ones.
struct Contradictions {
  int64_t prompts = 0;              // that have more than one answer
  int64_t samples = 0;              // with such a prompt
  std::span<const int32_t> prompt;  // of the first
};
// Of fine-tuning data, by what stands before the first answer of a sample and by that answer.
Contradictions contradictions(const Dataset& data);

}  // namespace nibble

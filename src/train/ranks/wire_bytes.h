// SPDX-License-Identifier: MIT
// What ranks tell each other of a parameter, and how many bytes that is: the plan of an exchange.
#pragma once
#include <cstdint>

#include "train/param_groups.h"
#include "train/ranks/shards.h"
#include "train/settings.h"

namespace nibble {

// Whether a rank's gradients of a parameter come whole: those of an embedding are rows of tokens,
// to which a tied head adds a matrix.
bool gradient_is_whole(const ParamSpec& param, const Config& config, const TrainSettings& settings);
DType gradient_type(const ParamSpec& param, const TrainSettings& settings);

// Payload that a rank sends.
struct WireBytes {
  uint64_t gradients = 0;  // of one round, without rows of the embedding
  uint64_t weights = 0;    // after an update
  // MemoryMode::gathered: blocks that come together, in the first round of a step and in each
  // other.
  uint64_t blocks = 0, blocks_again = 0;
  uint64_t embed_row = 0;  // for each row of the embedding and rank it has elements for, at most
};
// Of one window: the most that a rank has to send, or to hear, of all parts of it together.
uint64_t window_bytes(const Shards& shards, const ParamGroups& groups, const Config& config,
                      const TrainSettings& settings);
WireBytes wire_bytes(const ParamGroups& groups, const Config& config, const TrainSettings& settings,
                     int rank);

}  // namespace nibble

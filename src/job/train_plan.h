// SPDX-License-Identifier: MIT
// What a training run will need, before anything is loaded.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/keep/keep_choices.h"
#include "job/memory_choice.h"
#include "job/train_choices.h"
#include "train/ranks/wire_bytes.h"

namespace nibble {

struct PlanRequest {
  ModelOptions model;  // its config alone is enough: nothing is read but dimensions
  BatchSettings batch;
  TrainChoices train;
  KeepChoices keep;  // sources are not read: windows of seq_len
  // Of the largest batch; unset: batch_size x seq_len, all of them, batch_size.
  std::optional<int64_t> tokens, outputs, sequences;
  int64_t ranks = 1;     // that train together
  double link_gbit = 0;  // a second, from each rank; 0: not said
};

// What a rank sends in a step, beside a few numbers.
struct WirePlan {
  MemoryMode mode = MemoryMode::sharded;
  int64_t rounds = 1;  // micro-batches of each rank
  WireBytes bytes;
  uint64_t embed_rows = 0;  // of a round, at most: those of the embedding
  uint64_t total() const {
    return uint64_t(rounds) * (bytes.gradients + embed_rows) + bytes.weights + blocks();
  }
  // NVFP4 weights that come where they are read.
  uint64_t blocks() const { return bytes.blocks + uint64_t(rounds - 1) * bytes.blocks_again; }
  double seconds(double link_gbit) const { return double(total()) * 8e-9 / link_gbit; }
};

struct TrainPlan {
  std::string backend;
  int64_t parameters = 0;
  uint64_t available = 0;         // of the backend's memory, in bytes
  std::vector<MemoryPlan> plans;  // the fastest first
  std::vector<WirePlan> wires;    // of several ranks, by mode; `plans` then are of rank 0
  bool fits() const;              // one of them does
};

// Throws UsageError, FormatError.
TrainPlan plan_training(const PlanRequest& request);

}  // namespace nibble

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

namespace nibble {

struct PlanRequest {
  ModelOptions model;  // its config alone is enough: nothing is read but dimensions
  BatchSettings batch;
  TrainChoices train;
  KeepChoices keep;  // sources are not read: windows of seq_len
  // Of the largest batch; unset: batch_size x seq_len, all of them, batch_size.
  std::optional<int64_t> tokens, outputs, sequences;
};

struct TrainPlan {
  std::string backend;
  int64_t parameters = 0;
  uint64_t available = 0;         // of the backend's memory, in bytes
  std::vector<MemoryPlan> plans;  // the fastest first
  bool fits() const;              // one of them does
};

// Throws UsageError, FormatError.
TrainPlan plan_training(const PlanRequest& request);

}  // namespace nibble

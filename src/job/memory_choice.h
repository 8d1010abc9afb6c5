// SPDX-License-Identifier: MIT
// The ways a training run can use memory, what each needs, and which one is taken.
#pragma once
#include <string>
#include <vector>

#include "backend/backend.h"
#include "job/train_choices.h"
#include "train/memory.h"

namespace nibble {

struct MemoryPlan {
  MemoryMode mode = MemoryMode::resident;
  Recompute recompute = Recompute::none;
  std::vector<ArenaBytes> arenas;
  uint64_t program = 0;             // beside the arenas, about
  uint64_t total = 0, on_host = 0;  // of the backend's memory; of the host's where that is another
  bool fits = false;
  double cost = 0;  // of a step, in tokens' worth of work
};

// What a run can have of the backend's memory: what is free, and what the backend took before and
// is counted in every plan.
uint64_t memory_budget(const Backend& backend);

// Every way the choices allow, the fastest first. Throws UsageError for choices that
// exclude each other.
std::vector<MemoryPlan> memory_plans(TrainSettings settings, const TrainChoices& choices,
                                     const Backend& backend, const Config& config,
                                     bool global_scales, int64_t accumulate);

// "--memory-mode release --recompute mlp"
std::string memory_flags(const MemoryPlan& plan);

// Fills settings.memory and .recompute with the fastest way that fits and logs it with its numbers.
// DeviceError with the arenas and the way that would fit, if any, when none does.
void choose_memory(TrainSettings& settings, const TrainChoices& choices, const Backend& backend,
                   const Config& config, bool global_scales, int64_t accumulate);

}  // namespace nibble

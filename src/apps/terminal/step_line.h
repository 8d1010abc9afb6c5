// SPDX-License-Identifier: MIT
// A step of a training run in one line of a terminal, however narrow that is.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runlog/run_metrics.h"

namespace nibble {

struct StepLine {
  int64_t steps = 0;  // of the whole run
  StepRecord at;      // the last one done
  double seconds_left = kNoValue;
  double held_out = kNoValue;
  int64_t gate_step = 0;
  std::vector<std::pair<std::string, double>> gate;  // of the last gate: groups, percent
};

// Step, loss, rate, speed, memory, time left, held-out loss, last gate. What does not fit into
// `columns` is said shorter, or left out, the least important first; step and loss always stand.
std::string step_text(const StepLine& line, size_t columns);

}  // namespace nibble

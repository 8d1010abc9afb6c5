// SPDX-License-Identifier: MIT
// The learning rate over the run: warm-up, then constant, linear or cosine decay.
#pragma once
#include <cstdint>
#include <string_view>

namespace nibble {

enum class ScheduleShape { constant, linear, cosine };

struct Schedule {
  ScheduleShape shape = ScheduleShape::constant;
  double lr = 1e-5;        // the peak
  double final_share = 0;  // of the peak, at the last step (linear, cosine)
  int64_t warmup = 0;      // steps of linear rise
  int64_t steps = 1;       // of the whole run
};

// Step 1 is the first. Warm-up step s has s / warmup of the peak; the last step has final_share.
double learning_rate(const Schedule& schedule, int64_t step);

}  // namespace nibble

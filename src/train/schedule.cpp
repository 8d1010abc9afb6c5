// SPDX-License-Identifier: MIT
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace nibble {

double learning_rate(const Schedule& s, int64_t step) {
  if (step <= s.warmup) return s.lr * double(step) / double(s.warmup);
  if (s.shape == ScheduleShape::constant) return s.lr;
  // 0 at the end of the warm-up, 1 at the last step.
  const double span = double(std::max<int64_t>(1, s.steps - s.warmup));
  const double t = std::clamp(double(step - s.warmup) / span, 0.0, 1.0);
  const double fall =
      s.shape == ScheduleShape::linear ? 1 - t : 0.5 * (1 + std::cos(std::numbers::pi * t));
  return s.lr * (s.final_share + (1 - s.final_share) * fall);
}

}  // namespace nibble

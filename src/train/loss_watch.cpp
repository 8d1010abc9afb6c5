// SPDX-License-Identifier: MIT
#include "train/loss_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

constexpr int64_t kBadLosses = 3, kSkippedSteps = 20;
constexpr int64_t kStartLosses = 10, kFirstAsked = 20;
constexpr double kRise = 1.5, kAbove = 1;

}  // namespace

std::optional<std::string> LossWatch::add(double loss, bool skipped, double guessing) {
  State& s = state;
  s.skipped_in_a_row = skipped ? s.skipped_in_a_row + 1 : 0;
  if (!std::isfinite(loss)) {
    if (++s.bad_in_a_row < kBadLosses) return std::nullopt;
    return fmt::format("the loss was not finite {} times in a row", s.bad_in_a_row);
  }
  s.bad_in_a_row = 0;
  if (s.skipped_in_a_row >= kSkippedSteps) {
    return fmt::format("{} steps in a row were skipped", s.skipped_in_a_row);
  }
  if (++s.losses == 1) s.first = loss;
  if (s.losses <= kStartLosses) s.start_sum += loss;
  s.smoothed += std::max(0.05, 1.0 / double(s.losses)) * (loss - s.smoothed);
  if (s.losses <= kStartLosses) {
    s.lowest = s.smoothed;
    return std::nullopt;
  }
  s.lowest = std::min(s.lowest, s.smoothed);
  if (s.losses < kFirstAsked) return std::nullopt;
  if (s.smoothed > guessing + kAbove && s.first <= guessing + kAbove) {
    return fmt::format("the loss is worse than guessing: {:.3g} smoothed, {:.3g} would be a guess",
                       s.smoothed, guessing);
  }
  const double start = s.start_sum / double(kStartLosses);
  if (s.smoothed <= kRise * s.lowest || s.smoothed <= start + kAbove) return std::nullopt;
  return fmt::format("the loss exploded: {:.3g} smoothed, {:.3g} at the start, {:.3g} at its best",
                     s.smoothed, start, s.lowest);
}

}  // namespace nibble

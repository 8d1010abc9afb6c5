// SPDX-License-Identifier: MIT
#include "train/loss_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

constexpr int64_t kBadLosses = 3, kSkippedSteps = 20, kHighLosses = 10;
constexpr int64_t kStartLosses = 10, kFirstAsked = 20;
constexpr double kRise = 1.5, kAbove = 1;
constexpr double kFarAbove = 2, kSmoothedFarAbove = 1.5;

LossAlarm ran_away(const std::string& loss, double first, double guessing) {
  return {fmt::format("the loss ran away: {}, {:.3g} at the first step, {:.3g} would be a guess",
                      loss, first, guessing),
          true};
}

}  // namespace

std::optional<LossAlarm> LossWatch::at_end(double loss, double guessing) const {
  if (!std::isfinite(loss)) return LossAlarm{"the loss of the trained weights is not finite", true};
  const double first = state.losses > 0 ? state.first : loss;
  if (loss <= kFarAbove * std::max(guessing, first)) return std::nullopt;
  return ran_away(fmt::format("{:.4g} after the last step", loss), first, guessing);
}

std::optional<LossAlarm> LossWatch::add(double loss, bool skipped, double guessing, bool last) {
  State& s = state;
  s.skipped_in_a_row = skipped ? s.skipped_in_a_row + 1 : 0;
  if (!std::isfinite(loss)) {
    if (++s.bad_in_a_row < kBadLosses) return std::nullopt;
    return LossAlarm{fmt::format("the loss was not finite {} times in a row", s.bad_in_a_row),
                     true};
  }
  s.bad_in_a_row = 0;
  if (s.skipped_in_a_row >= kSkippedSteps) {
    return LossAlarm{fmt::format("{} steps in a row were skipped", s.skipped_in_a_row), true};
  }
  if (++s.losses == 1) s.first = loss;
  if (s.losses <= kStartLosses) s.start_sum += loss;
  s.smoothed += std::max(0.05, 1.0 / double(s.losses)) * (loss - s.smoothed);
  const double honest = std::max(guessing, s.first);
  s.high_in_a_row = loss > kFarAbove * honest ? s.high_in_a_row + 1 : 0;
  if (s.high_in_a_row >= kHighLosses || (last && s.high_in_a_row > 0)) {
    return ran_away(fmt::format("{:.4g}", loss), s.first, guessing);
  }
  if (s.losses <= kStartLosses) {
    s.lowest = s.smoothed;
    return std::nullopt;
  }
  s.lowest = std::min(s.lowest, s.smoothed);
  if (s.losses < kFirstAsked) return std::nullopt;
  if (s.smoothed > kSmoothedFarAbove * honest) {
    return ran_away(fmt::format("{:.4g} smoothed", s.smoothed), s.first, guessing);
  }
  if (s.smoothed > guessing + kAbove && s.first <= guessing + kAbove) {
    return LossAlarm{
        fmt::format("the loss is worse than guessing: {:.3g} smoothed, {:.3g} would be a guess",
                    s.smoothed, guessing)};
  }
  const double start = s.start_sum / double(kStartLosses);
  if (s.smoothed <= kRise * s.lowest || s.smoothed <= start + kAbove) return std::nullopt;
  return LossAlarm{
      fmt::format("the loss exploded: {:.3g} smoothed, {:.3g} at the start, {:.3g} at its best",
                  s.smoothed, start, s.lowest)};
}

}  // namespace nibble

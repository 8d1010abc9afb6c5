// SPDX-License-Identifier: MIT
#include "job/collapse.h"

#include <fmt/format.h>

namespace nibble {
namespace {

constexpr double kLeastBaseline = 20;  // percent: below, a fall says nothing

}  // namespace

std::string_view on_collapse_name(OnCollapse action) {
  switch (action) {
    case OnCollapse::automatic: return "auto";
    case OnCollapse::ignore: return "ignore";
    case OnCollapse::stop: return "stop";
    case OnCollapse::rollback: return "rollback";
    case OnCollapse::restart: return "restart";
  }
  return "?";
}

std::optional<std::string> gate_alarm(const ProbeScores& scores, const ReplySigns& signs,
                                      const ProbeScores& baseline, const ReplySigns& baseline_signs,
                                      const CollapseLimits& limits) {
  if (signs.not_finite > 0) {
    return fmt::format("{} replies have logits that are not finite", signs.not_finite);
  }
  if (signs.repeating > baseline_signs.repeating + limits.most_repeating) {
    return fmt::format("{:.0f} % of the replies go in circles, {:.0f} % did before the training",
                       100 * signs.repeating, 100 * baseline_signs.repeating);
  }
  if (signs.identity > baseline_signs.identity && signs.identity > limits.most_identity) {
    return fmt::format("{:.0f} % of the {} probes are answered with the identity",
                       100 * signs.identity, signs.identity_group);
  }
  const GroupScore *now = scores.find(kRetentionGroup), *before = baseline.find(kRetentionGroup);
  if (now && before && before->all.percent() >= kLeastBaseline &&
      now->all.percent() < limits.least_retention * before->all.percent()) {
    return fmt::format("retention fell from {:.1f} % to {:.1f} %, below {:.0f} % of what it was",
                       before->all.percent(), now->all.percent(), 100 * limits.least_retention);
  }
  return std::nullopt;
}

}  // namespace nibble

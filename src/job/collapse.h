// SPDX-License-Identifier: MIT
// What counts as collapse in the replies of a gate, and what is done about it.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "eval/probe_score.h"

namespace nibble {

enum class OnCollapse {
  automatic,  // losses no sound run has stop it; what only may be a collapse is said
  ignore,     // it is said
  stop,       // nothing is exported, exit code 1
  rollback,   // to the last good gate, with half the learning rate
  restart,    // from the original file, with half the learning rate
};
std::string_view on_collapse_name(OnCollapse action);

struct CollapseLimits {
  double least_retention = 0.5;  // of the baseline's score of group "retention"
  double most_identity = 0.5;    // share of a control group's replies that give the identity
  double most_repeating = 0.25;  // share of all replies, above the baseline's own
};

// Why the replies of a gate look like collapse, or nothing. The retention counts where the baseline
// had at least 20 %.
std::optional<std::string> gate_alarm(const ProbeScores& scores, const ReplySigns& signs,
                                      const ProbeScores& baseline, const ReplySigns& baseline_signs,
                                      const CollapseLimits& limits);

}  // namespace nibble

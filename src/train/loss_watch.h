// SPDX-License-Identifier: MIT
// Whether the losses of a run say that it has broken down.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace nibble {

// Why a run is over. `certain`: no sound run ever looks like that, so it need not be asked for to
// be stopped; otherwise hard data may explain it, too.
struct LossAlarm {
  std::string why;
  bool certain = false;
  bool operator==(const LossAlarm&) const = default;
};

// The rules, in full. Certain:
// - three losses in a row that are not finite;
// - twenty skipped steps in a row (fp16 may skip a few while it looks for its loss scale);
// - ran away: the loss is above twice the larger of the first loss and of what guessing costs,
// ten
//   times in a row or at the last step; or the smoothed loss (a mean of about the last twenty) is
//   above 1.5 times that, asked from the twentieth loss on.
// Signs:
// - explosion: the smoothed loss is above 1.5 times the lowest it has been and more than 1 (a nat
//   per token) above the start, which is the mean of the first ten losses. Asked from the twentieth
//   loss on;
// - worse than guessing: the smoothed loss is more than 1 above that of a model that knows nothing,
//   where the first loss was not. Asked from the twentieth loss on.
class LossWatch {
 public:
  // What a step said. Returns why it is over, or nothing; says it again at every later step.
  // `guessing` is the loss of a model that knows nothing: the logarithm of the vocabulary.
  std::optional<LossAlarm> add(double loss, bool skipped,
                               double guessing = std::numeric_limits<double>::infinity(),
                               bool last = false);
  // The loss of the trained weights, which no step has seen: one says as much as a last step.
  std::optional<LossAlarm> at_end(double loss, double guessing) const;

  // For checkpoints: everything it knows, every value finite.
  struct State {
    int64_t losses = 0, bad_in_a_row = 0, skipped_in_a_row = 0;
    double first = 0, start_sum = 0, smoothed = 0, lowest = 0;
    int64_t high_in_a_row = 0;
  };
  State state;
};

}  // namespace nibble

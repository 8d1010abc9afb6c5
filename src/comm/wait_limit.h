// SPDX-License-Identifier: MIT
// How long a rank waits for the others, and what it says when they do not come.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace nibble {

// Seconds: NIBBLE_RANK_LIMIT, 600 where it is not set. Throws UsageError when it is no number > 0.
double rank_limit();

// Between two looks at what has come: at once at first, then less and less often, so that ranks
// that share a core do not take it from who computes.
class Patience {
 public:
  explicit Patience(double limit_seconds) : limit_(limit_seconds) {}
  // False: the limit is over.
  bool wait();
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  double limit_;
  Clock::time_point start_ = Clock::now();
  int looks_ = 0;
};

// DeviceError: "rank 0 on a waited 600 s at step 3, gradients of layer 2 for rank 1 on b, ...".
[[noreturn]] void throw_missing(const Comm& comm, const std::vector<int>& missing, double seconds);

}  // namespace nibble

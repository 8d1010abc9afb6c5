// SPDX-License-Identifier: MIT
// What rotary embedding turns by, finished on the host: how a family scales its frequencies is none
// of a backend's business (model/rope.h).
#pragma once
#include <vector>

namespace nibble {

struct RopeFrequencies {
  std::vector<double> turns;  // [D/2] radians a position, of each pair; never rising
  double factor = 1;          // of every cosine and sine
  bool operator==(const RopeFrequencies&) const = default;
};

}  // namespace nibble

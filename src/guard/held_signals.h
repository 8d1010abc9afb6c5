// SPDX-License-Identifier: MIT
// Signals that wait: what must not be cut in two is finished, then they do what they would have
// done.
#pragma once
#include <csignal>
#include <utility>
#include <vector>

namespace nibble {

// SIGINT, SIGTERM and SIGHUP; one that is ignored stays ignored. One at a time.
class HeldSignals {
 public:
  // `what` ("the export") is said to whoever sends one; a string literal.
  explicit HeldSignals(const char* what);
  ~HeldSignals();  // the first that came is raised now
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace nibble

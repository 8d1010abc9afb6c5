// SPDX-License-Identifier: MIT
// A progress line for work that takes longer than two seconds: redrawn in place on a terminal,
// a plain line now and then elsewhere, nothing at all for quick work.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace nibble {

class Progress {
 public:
  // unit: what `done` counts ("bytes" is shown as sizes, anything else as it is).
  Progress(const std::string& what, uint64_t total, std::string unit = "bytes");
  ~Progress();
  void update(uint64_t done);
  void advance(uint64_t by) { update(done_ + by); }

 private:
  void draw(double elapsed_s);
  std::string what_, unit_;
  uint64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point start_, last_;
  bool terminal_, drawn_ = false;
};

}  // namespace nibble

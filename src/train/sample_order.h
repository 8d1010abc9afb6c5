// SPDX-License-Identifier: MIT
// Which sample comes when. The place in the run is one 64-bit counter, so a resumed run needs
// nothing else to go on exactly where it stopped.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace nibble {

enum class SampleMode {
  random,      // a fresh shuffle every epoch: each sample exactly once
  sequential,  // as in the file, over and over
};
std::string_view sample_mode_name(SampleMode mode);

// Drawing with replacement, as the predecessor did it, is not offered: after one epoch's worth of
// draws 37 % of the samples have not been seen, and a small set is learned unevenly.
class SampleOrder {
 public:
  SampleOrder(SampleMode mode, int64_t n_samples, uint64_t seed);  // n_samples >= 1

  // The sample at a position of the run; epoch e is positions e n .. (e + 1) n - 1. Depends on
  // mode, n, seed and position only; a change of epoch costs one pass over the samples.
  int64_t at(uint64_t position);
  uint64_t epoch_of(uint64_t position) const { return position / uint64_t(n_); }

 private:
  void shuffle(uint64_t epoch);

  SampleMode mode_;
  int64_t n_;
  uint64_t seed_;
  uint64_t epoch_ = 0;                // whose permutation is at hand
  std::vector<int64_t> permutation_;  // empty: none yet
};

}  // namespace nibble

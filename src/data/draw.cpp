// SPDX-License-Identifier: MIT
#include "data/draw.h"

#include <numeric>

#include "core/rng.h"

namespace nibble {

bool Walk::next() {
  depth_ = 0;
  if (!begun_) return begun_ = true;
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().of) choices_.pop_back();
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  return true;
}

uint32_t Walk::choose(uint32_t n) {
  if (depth_ == choices_.size()) choices_.push_back({0, n});
  return choices_[depth_++].taken;
}

uint32_t Draw::word() {
  if (used_ == 4) {
    words_ = philox(seed_, stream_, index_ << 16 | block_++);
    used_ = 0;
  }
  return words_[used_++];
}

std::vector<uint32_t> shuffled(uint32_t n, Draw& draw) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  shuffle(order, draw);
  return order;
}

}  // namespace nibble

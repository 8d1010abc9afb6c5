// SPDX-License-Identifier: MIT
#include "serve/schedule/places.h"

#include <algorithm>

namespace nibble {

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto end = std::ranges::mismatch(a, b);
  return end.in1 - a.begin();
}

Places::Places(BatchEngine& engine)
    : engine_(engine),
      taken_(size_t(engine.sequences())),
      freed_(size_t(engine.sequences())),
      promised_(size_t(engine.sequences())) {}

void Places::promise(int64_t place, std::span<const int32_t> tokens) {
  const std::lock_guard lock(mutex_);
  promised_[size_t(place)].assign(tokens.begin(), tokens.end());
}

int64_t Places::promised(std::span<const int32_t> prompt) const {
  const std::lock_guard lock(mutex_);
  int64_t most = 0;
  for (const auto& tokens : promised_) most = std::max(most, common_prefix(tokens, prompt));
  return std::min(most, int64_t(prompt.size()) - 1);
}

int64_t Places::usable(int64_t place, std::span<const int32_t> prompt) const {
  return std::min(common_prefix(engine_.tokens(place), prompt), int64_t(prompt.size()) - 1);
}

int64_t Places::take(std::span<const int32_t> prompt) {
  int64_t best = -1, shares = -1;
  for (int64_t p = 0; p < engine_.sequences(); ++p) {
    if (taken_[size_t(p)]) continue;
    const int64_t here = usable(p, prompt);
    if (here > shares || (here == shares && freed_[size_t(p)] < freed_[size_t(best)])) {
      best = p;
      shares = here;
    }
  }
  if (best >= 0) {
    taken_[size_t(best)] = true;
    promise(best, prompt);
  }
  return best;
}

void Places::free(int64_t place) {
  taken_[size_t(place)] = false;
  freed_[size_t(place)] = ++clock_;
  promise(place, engine_.tokens(place));
}

int64_t Places::free_count() const { return std::ranges::count(taken_, false); }

int64_t Places::spare_blocks() const {
  int64_t blocks = engine_.cache().free_blocks();
  for (size_t p = 0; p < taken_.size(); ++p) {
    if (!taken_[p]) blocks += engine_.cache().held_blocks(int64_t(p));
  }
  return blocks;
}

bool Places::forget_one() {
  int64_t oldest = -1;
  for (int64_t p = 0; p < engine_.sequences(); ++p) {
    if (taken_[size_t(p)] || engine_.length(p) == 0) continue;
    if (oldest < 0 || freed_[size_t(p)] < freed_[size_t(oldest)]) oldest = p;
  }
  if (oldest < 0) return false;
  engine_.truncate(oldest, 0);
  promise(oldest, {});
  return true;
}

int64_t Places::cached(std::span<const int32_t> prompt) const {
  int64_t most = 0;
  for (int64_t p = 0; p < engine_.sequences(); ++p) most = std::max(most, usable(p, prompt));
  return most;
}

int64_t Places::settle(int64_t place, std::span<const int32_t> prompt) {
  const int64_t own = usable(place, prompt);
  int64_t source = place, most = own;
  for (int64_t p = 0; p < engine_.sequences(); ++p) {
    const int64_t there = usable(p, prompt);
    if (p != place && there >= own + kWorthCopying && there > most) {
      source = p;
      most = there;
    }
  }
  if (source == place) {
    engine_.truncate(place, own);
  } else {
    engine_.copy_prefix(source, place, most);
  }
  return most;
}

}  // namespace nibble

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

int64_t Places::find(std::span<const int32_t> prompt) const {
  int64_t best = -1, shares = -1, empty = -1;
  const auto longer_free = [&](int64_t p, int64_t than) {
    return than < 0 || freed_[size_t(p)] < freed_[size_t(than)];
  };
  for (int64_t p = 0; p < engine_.sequences(); ++p) {
    if (taken_[size_t(p)]) continue;
    const int64_t here = usable(p, prompt);
    if (here > shares || (here == shares && longer_free(p, best))) {
      best = p;
      shares = here;
    }
    if (engine_.length(p) == 0 && longer_free(p, empty)) empty = p;
  }
  const bool loses = best >= 0 && engine_.length(best) > shares;
  return loses && empty >= 0 && engine_.cache().block() > 0 ? empty : best;
}

void Places::take(int64_t place, std::span<const int32_t> prompt) {
  taken_[size_t(place)] = true;
  promise(place, prompt);
}

void Places::free(int64_t place) {
  taken_[size_t(place)] = false;
  freed_[size_t(place)] = ++clock_;
  promise(place, engine_.tokens(place));
}

int64_t Places::free_count() const { return std::ranges::count(taken_, false); }

int64_t Places::spare_blocks() const {
  const CacheBlocks& blocks = engine_.cache().blocks();
  return blocks.blocks() - blocks.held_by(taken_);
}

int64_t Places::shared_blocks(int64_t place, std::span<const int32_t> prompt) const {
  const CacheBlocks& blocks = engine_.cache().blocks();
  const auto [from, length] = best_for(place, prompt);
  int64_t most = 0;
  for (size_t p = 0; p < taken_.size(); ++p) {
    if (taken_[p]) most = std::max(most, blocks.in_common(from, int64_t(p)));
  }
  return std::min(most, length / engine_.cache().block());
}

bool Places::forget_one() {
  const CacheBlocks& blocks = engine_.cache().blocks();
  const auto oldest = [&](bool of_its_own) {
    int64_t found = -1;
    for (int64_t p = 0; p < engine_.sequences(); ++p) {
      if (taken_[size_t(p)] || engine_.length(p) == 0) continue;
      if (of_its_own && blocks.holders_of_last(p) > 1) continue;
      if (found < 0 || freed_[size_t(p)] < freed_[size_t(found)]) found = p;
    }
    return found;
  };
  int64_t place = oldest(true);
  if (place < 0) place = oldest(false);
  if (place < 0) return false;
  engine_.truncate(place, 0);
  promise(place, {});
  return true;
}

int64_t Places::cached(std::span<const int32_t> prompt) const {
  int64_t most = 0;
  for (int64_t p = 0; p < engine_.sequences(); ++p) most = std::max(most, usable(p, prompt));
  return most;
}

Places::Beginning Places::best_for(int64_t place, std::span<const int32_t> prompt) const {
  const int64_t own = usable(place, prompt);
  Beginning best{place, own};
  const KvCache& cache = engine_.cache();
  if (cache.block() > 0 && !cache.blocks().can_share()) return best;
  for (int64_t p = 0; p < engine_.sequences(); ++p) {
    const int64_t there = usable(p, prompt);
    if (p != place && there >= own + kWorthCopying && there > best.length) best = {p, there};
  }
  return best;
}

int64_t Places::settle(int64_t place, std::span<const int32_t> prompt) {
  const auto [from, length] = best_for(place, prompt);
  if (from == place) {
    engine_.truncate(place, length);
  } else {
    engine_.copy_prefix(from, place, length);
  }
  return length;
}

}  // namespace nibble

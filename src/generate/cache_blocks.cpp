// SPDX-License-Identifier: MIT
#include "generate/cache_blocks.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace nibble {

CacheBlocks::CacheBlocks(int64_t sequences, int64_t per_sequence, int64_t blocks, int64_t slots,
                         int64_t most_breaks, Memory memory)
    : per_sequence_(per_sequence),
      blocks_(blocks),
      slots_(slots),
      most_breaks_(most_breaks),
      places_(sequences * per_sequence),
      memory_(std::move(memory)),
      free_(blocks),
      of_(size_t(sequences)),
      holders_(size_t(names(sequences, per_sequence, blocks))),
      shown_(size_t(places_)) {
  std::iota(shown_.begin(), shown_.end(), 0);
}

int64_t CacheBlocks::held_by(const std::vector<bool>& sequences) const {
  std::vector<bool> seen(holders_.size());
  int64_t n = 0;
  for (size_t s = 0; s < of_.size(); ++s) {
    if (!sequences[s]) continue;
    for (const int32_t name : of_[s].names) {
      n += !seen[size_t(name)];
      seen[size_t(name)] = true;
    }
  }
  return n;
}

int64_t CacheBlocks::in_common(int64_t a, int64_t b) const {
  const auto &x = of_[size_t(a)].names, &y = of_[size_t(b)].names;
  return std::ranges::mismatch(x, y).in1 - x.begin();
}

// The block whose own place this is, or else one beyond the places, next to the one before.
int32_t CacheBlocks::free_name(int64_t place, int32_t before) const {
  const auto is_free = [&](int64_t name) { return holders_[size_t(name)] == 0; };
  if (is_free(place)) return int32_t(place);
  const int64_t next = int64_t(before) + 1;
  if (next > places_ && next < int64_t(holders_.size()) && is_free(next)) return int32_t(next);
  const auto found = std::find(holders_.begin() + places_, holders_.end(), 0);
  if (found == holders_.end())
    throw_internal("{} of {} blocks are free, and none has a name", free_, blocks_);
  return int32_t(found - holders_.begin());
}

bool CacheBlocks::breaks_at(int64_t place) const {
  return place > 0 && place < places_ && shown_[size_t(place)] != shown_[size_t(place - 1)] + 1;
}

// Neighbours that are shown as neighbours are one call. All of them are, or none.
void CacheBlocks::show(int64_t place, const std::vector<int32_t>& names) {
  const auto n = int64_t(names.size());
  const auto shown_at = shown_.begin() + place;
  if (std::equal(names.begin(), names.end(), shown_at)) return;
  const auto show_all = [&](auto name_at) {
    for (int64_t i = 0, end; i < n; i = end) {
      for (end = i + 1; end < n && *(name_at + end) == *(name_at + end - 1) + 1;) ++end;
      memory_.show(place + i, *(name_at + i), end - i);
    }
  };
  try {
    show_all(names.begin());
  } catch (...) {
    // What a sequence had must be seen again, or nothing here can be trusted any more.
    [&]() noexcept { show_all(shown_at); }();
    throw;
  }
  for (int64_t p = place; p <= place + n; ++p) breaks_ -= breaks_at(p);
  for (int64_t i = 0; i < n; ++i) shown_[size_t(place + i)] = names[size_t(i)];
  for (int64_t p = place; p <= place + n; ++p) breaks_ += breaks_at(p);
}

// Nobody's memory is given back, neighbours in one call.
void CacheBlocks::drop(const std::vector<int32_t>& names) {
  std::vector<int32_t> unheld;
  for (const int32_t name : names) {
    if (--holders_[size_t(name)] == 0) {
      unheld.push_back(name);
    } else {
      --shared_;
    }
  }
  free_ += int64_t(unheld.size());
  for (size_t i = 0, end; i < unheld.size(); i = end) {
    for (end = i + 1; end < unheld.size() && unheld[end] == unheld[end - 1] + 1;) ++end;
    memory_.give_back(unheld[i], int64_t(end - i));
  }
}

bool CacheBlocks::hold(int64_t sequence, int64_t tokens) {
  Sequence& s = of_[size_t(sequence)];
  const auto have = int64_t(s.names.size()), need = std::max(have, blocks_of(tokens));
  const bool inside = s.cut % slots_ != 0 && blocks_of(s.cut) == have && tokens > s.cut;
  const bool own = inside && holders_[size_t(s.names.back())] > 1;
  const int64_t begin = have - own;
  if (need - begin > free_) return false;
  if (need > begin) {
    std::vector<int32_t> names;
    const int64_t place = sequence * per_sequence_ + begin;
    int32_t before = begin > 0 ? s.names[size_t(begin - 1)] : -1;
    for (int64_t i = 0; i < need - begin; ++i) {
      names.push_back(before = free_name(place + i, before));
      ++holders_[size_t(before)];
    }
    try {
      show(place, names);
    } catch (...) {
      for (const int32_t name : names) --holders_[size_t(name)];
      throw;
    }
    free_ -= int64_t(names.size());
    if (own) {
      const int32_t old = s.names.back();
      s.names.pop_back();
      // Whoever shares a block has it at the same distance from his beginning.
      const auto other = std::ranges::find_if(of_, [&](const Sequence& o) {
        return int64_t(o.names.size()) > begin && o.names[size_t(begin)] == old;
      });
      memory_.copy(place, (other - of_.begin()) * per_sequence_ + begin, s.cut % slots_);
      drop({old});
    }
    s.names.insert(s.names.end(), names.begin(), names.end());
  }
  if (tokens > s.cut) s.cut = 0;
  return true;
}

void CacheBlocks::keep(int64_t sequence, int64_t tokens) {
  Sequence& s = of_[size_t(sequence)];
  s.cut = tokens;
  const auto kept = std::min(size_t(blocks_of(tokens)), s.names.size());
  const std::vector<int32_t> back(s.names.begin() + std::ptrdiff_t(kept), s.names.end());
  s.names.resize(kept);
  drop(back);
}

bool CacheBlocks::share(int64_t from, int64_t to, int64_t tokens) {
  const std::vector<int32_t>& source = of_[size_t(from)].names;
  Sequence& target = of_[size_t(to)];
  const int64_t n = blocks_of(tokens);
  if (!target.names.empty() || n > int64_t(source.size()))
    throw_internal("{} tokens cannot be shared by a sequence of {} blocks", tokens, source.size());
  if (!can_share()) return false;
  std::vector<int32_t> names(source.begin(), source.begin() + n);
  show(to * per_sequence_, names);
  for (const int32_t name : names) ++holders_[size_t(name)];
  shared_ += n;
  target = {std::move(names), tokens};
  return true;
}

}  // namespace nibble

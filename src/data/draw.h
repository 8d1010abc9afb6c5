// SPDX-License-Identifier: MIT
// Random choices that are the same on every machine, and every choice in turn.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace nibble {

// Every sequence of choices instead of random ones: while (walk.next()) { Draw draw(walk); ... }
class Walk {
 public:
  bool next();  // to the following sequence; false after the last
  uint32_t choose(uint32_t n);

 private:
  struct Choice {
    uint32_t taken, of;
  };
  std::vector<Choice> choices_;
  size_t depth_ = 0;
  bool begun_ = false;
};

// A sequence of random numbers that depends on (seed, stream, index) alone, or a walk over choices.
class Draw {
 public:
  Draw(uint64_t seed, uint64_t stream, uint64_t index)
      : seed_(seed), stream_(stream), index_(index) {}
  explicit Draw(Walk& walk) : Draw(0, 0, 0) { walk_ = &walk; }
  uint32_t word();
  uint32_t below(uint32_t n) {
    return walk_ ? walk_->choose(n) : uint32_t((uint64_t(word()) * n) >> 32);
  }
  bool percent(uint32_t p) { return walk_ ? walk_->choose(2) == 0 : below(100) < p; }
  template <class List>
  const auto& pick(const List& list) {
    return list[below(uint32_t(list.size()))];
  }

 private:
  uint64_t seed_, stream_, index_;
  uint32_t block_ = 0, used_ = 4;
  std::array<uint32_t, 4> words_{};
  Walk* walk_ = nullptr;
};

// The one way lists are shuffled: the bytes of every set depend on it.
template <class List>
void shuffle(List& list, Draw& draw) {
  for (size_t i = list.size(); i > 1; --i) {
    std::swap(list[i - 1], list[draw.below(uint32_t(i))]);
  }
}
std::vector<uint32_t> shuffled(uint32_t n, Draw& draw);  // 0 .. n-1

}  // namespace nibble

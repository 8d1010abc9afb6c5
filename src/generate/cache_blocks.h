// SPDX-License-Identifier: MIT
// Which blocks of a pool stand behind the slots of which sequence (docs/adr/0024-cache-pool.md).
// The addresses of a sequence are places for `per_sequence` blocks that follow each other; a block
// has a name, which is the place it is shown at first, and can be shown at others: a beginning that
// sequences share takes its memory once. Who goes on behind such a beginning inside a block gets
// that block for himself. Knows nothing of tensors: what is done to memory are three functions.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace nibble {

class CacheBlocks {
 public:
  struct Memory {
    std::function<void(int64_t at, int64_t name, int64_t n)> show;  // n blocks; may throw
    std::function<void(int64_t name, int64_t n)> give_back;
    std::function<void(int64_t to, int64_t from, int64_t slots)> copy;  // between places
  };
  // A block has `slots` slots. `most_breaks`: how often neighbours may show blocks that are no
  // neighbours, as long as sharing is a choice.
  CacheBlocks(int64_t sequences, int64_t per_sequence, int64_t blocks, int64_t slots,
              int64_t most_breaks, Memory memory);

  // Names beyond the places: of blocks whose own place is taken by others' memory.
  static int64_t names(int64_t sequences, int64_t per_sequence, int64_t blocks) {
    return sequences * per_sequence + blocks;
  }
  int64_t blocks() const { return blocks_; }
  int64_t free() const { return free_; }
  int64_t held(int64_t sequence) const { return int64_t(of_[size_t(sequence)].names.size()); }
  int64_t holders_of_last(int64_t sequence) const {
    const auto& names = of_[size_t(sequence)].names;
    return names.empty() ? 0 : holders_[size_t(names.back())];
  }
  // Of these sequences together, each once.
  int64_t held_by(const std::vector<bool>& sequences) const;
  // With how many blocks two sequences begin in common.
  int64_t in_common(int64_t a, int64_t b) const;
  // Sum of what sequences hold, less the blocks there are: the memory sharing does not take.
  int64_t saved() const { return shared_; }

  // Memory to write to behind the slots up to `tokens`; false: there are not enough free blocks,
  // and nothing has changed.
  bool hold(int64_t sequence, int64_t tokens);
  // The first `tokens` of it are left: gives up the blocks behind them.
  void keep(int64_t sequence, int64_t tokens);
  // Sequence `to`, which holds nothing, begins with these tokens of `from`; false: it cannot be
  // shown there as well, and nothing has changed.
  bool share(int64_t from, int64_t to, int64_t tokens);
  bool can_share() const { return breaks_ < most_breaks_; }

 private:
  struct Sequence {
    std::vector<int32_t> names;
    int64_t cut = 0;  // what is written behind these tokens goes into a block of its own
  };
  int64_t blocks_of(int64_t tokens) const { return (tokens + slots_ - 1) / slots_; }
  int32_t free_name(int64_t place, int32_t before) const;
  bool breaks_at(int64_t place) const;
  void show(int64_t place, const std::vector<int32_t>& names);
  void drop(const std::vector<int32_t>& names);

  int64_t per_sequence_, blocks_, slots_, most_breaks_, places_;
  Memory memory_;
  int64_t free_, shared_ = 0, breaks_ = 0;
  std::vector<Sequence> of_;
  std::vector<int32_t> holders_;  // by name
  std::vector<int32_t> shown_;    // by place: a name
};

}  // namespace nibble

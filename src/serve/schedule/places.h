// SPDX-License-Identifier: MIT
// Which sequence of the engine a prompt goes to, so that what is there of it already is not
// computed twice: its own place may hold an earlier turn, or another place the same beginning.
#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "generate/batch_engine.h"

namespace nibble {

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

class Places {
 public:
  explicit Places(BatchEngine& engine);

  // The free place for a prompt: the one that shares most with it, of several the one that was
  // free for longest; -1 when all are taken. Where a beginning can be shared, an empty one rather
  // than one that would lose what comes after it.
  int64_t find(std::span<const int32_t> prompt) const;
  // For a request that will run this prompt there.
  void take(int64_t place, std::span<const int32_t> prompt);
  void free(int64_t place);
  int64_t free_count() const;

  // Blocks of the pool (KvCache) that nobody's request holds: free ones, and those of tokens that
  // are kept only in case they come again.
  int64_t spare_blocks() const;
  // Whole blocks of requests that a prompt in this place would begin with.
  int64_t shared_blocks(int64_t place, std::span<const int32_t> prompt) const;
  // Forgets the tokens of the free place that was free for longest, of those first which have a
  // block that nobody shares; false: none has any.
  bool forget_one();

  // How much of a prompt the cache holds in one place or another. The last token always runs: its
  // logits are wanted.
  int64_t cached(std::span<const int32_t> prompt) const;
  // The same of what will be there when the prompts that have places have been run, from any
  // thread.
  int64_t promised(std::span<const int32_t> prompt) const;
  // Makes `place` hold the most it can have of the prompt and nothing else; how much that is.
  int64_t settle(int64_t place, std::span<const int32_t> prompt);

  // Copying less than this from another place is not worth the while.
  static constexpr int64_t kWorthCopying = 8;

 private:
  struct Beginning {
    int64_t from = 0, length = 0;
  };
  int64_t usable(int64_t place, std::span<const int32_t> prompt) const;
  void promise(int64_t place, std::span<const int32_t> tokens);
  Beginning best_for(int64_t place, std::span<const int32_t> prompt) const;

  BatchEngine& engine_;
  std::vector<bool> taken_;
  std::vector<uint64_t> freed_;  // when
  uint64_t clock_ = 0;
  mutable std::mutex mutex_;                    // guards what follows
  std::vector<std::vector<int32_t>> promised_;  // by place
};

}  // namespace nibble

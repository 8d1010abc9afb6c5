// SPDX-License-Identifier: MIT
// Keys and values of past tokens, after QK-norm and RoPE, one pair of tensors per layer. A sequence
// has slots that follow each other, room for a context; what differs is when memory stands behind
// them (docs/adr/0024-cache-pool.md): from the beginning, or block by block from a pool that all
// sequences share.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "model/config.h"

namespace nibble {

struct CacheShape {
  int64_t sequences = 1, context = 0;
  int64_t pool = 0;  // tokens of all sequences together; 0: each has its context
};

class KvCache {
 public:
  // dtype f32, bf16, f16, f8_e4m3 (f64 on the reference backend). A pool holds one context at least
  // and needs a backend that reserves addresses (traits().page_bytes).
  KvCache(Backend& backend, const Config& config, const CacheShape& shape, DType dtype);
  // Of so many slots from the beginning.
  KvCache(Backend& backend, const Config& config, int64_t slots, DType dtype)
      : KvCache(backend, config, {1, slots, 0}, dtype) {}
  static size_t bytes(const Config& config, int64_t slots, DType dtype);

  std::span<const KvView> views() const { return views_; }
  int64_t slots() const { return shape_.sequences * stride_; }
  int64_t first_slot(int64_t sequence) const { return sequence * stride_; }
  DType dtype() const { return dtype_; }
  size_t memory_bytes() const { return memory_bytes_; }  // at most; a pool's is said at the start

  // Slots in a block of the pool; 0: there is no pool.
  int64_t block() const { return block_; }
  int64_t blocks() const { return blocks_; }
  int64_t free_blocks() const { return free_; }
  int64_t blocks_of(int64_t tokens) const { return (tokens + block_ - 1) / block_; }
  int64_t held_blocks(int64_t sequence) const { return held_[size_t(sequence)]; }
  // Memory behind the first `tokens` slots of a sequence; false where the pool has no blocks left
  // for it, and nothing has changed.
  bool hold(int64_t sequence, int64_t tokens);
  // Gives back the blocks behind them.
  void keep(int64_t sequence, int64_t tokens);

 private:
  Backend& backend_;
  CacheShape shape_;
  DType dtype_;
  int64_t block_ = 0, stride_ = 0, blocks_ = 0, free_ = 0;
  size_t memory_bytes_ = 0;
  std::vector<int64_t> held_;  // blocks, by sequence
  Arena arena_;
  std::vector<KvView> views_;  // per layer, [slots, Hkv, D]
};

}  // namespace nibble

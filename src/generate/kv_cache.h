// SPDX-License-Identifier: MIT
// Keys and values of past tokens, after QK-norm and RoPE, one pair of tensors per layer. A sequence
// has slots that follow each other, room for a context; what differs is when memory stands behind
// them (docs/adr/0024-cache-pool.md): from the beginning, or block by block from a pool that all
// sequences share.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "generate/cache_blocks.h"
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
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  static size_t bytes(const Config& config, int64_t slots, DType dtype);

  std::span<const KvView> views() const { return views_; }
  int64_t slots() const { return shape_.sequences * stride_; }
  int64_t first_slot(int64_t sequence) const { return sequence * stride_; }
  DType dtype() const { return dtype_; }
  size_t memory_bytes() const { return memory_bytes_; }  // at most; a pool's is said at the start

  // Slots in a block of the pool; 0: there is no pool.
  int64_t block() const { return block_; }
  int64_t blocks_of(int64_t tokens) const { return (tokens + block_ - 1) / block_; }
  // Of a pool: who holds which blocks.
  const CacheBlocks& blocks() const { return *blocks_; }
  // Memory to write to behind the first `tokens` slots of a sequence; false where the pool has no
  // blocks left for it, and nothing has changed.
  bool hold(int64_t sequence, int64_t tokens) {
    return !blocks_ || blocks_->hold(sequence, tokens);
  }
  // The first `tokens` of a sequence are left: gives up the blocks behind them.
  void keep(int64_t sequence, int64_t tokens) {
    if (blocks_) blocks_->keep(sequence, tokens);
  }
  // Sequence `to`, which holds nothing, begins with the memory of these tokens of `from`; false
  // where that cannot be, and nothing has changed.
  bool share(int64_t from, int64_t to, int64_t tokens) {
    return blocks_ && blocks_->share(from, to, tokens);
  }
  size_t used_bytes() const { return memory_ ? memory_->used_bytes() : memory_bytes_; }

 private:
  CacheBlocks::Memory block_memory(std::vector<Tensor> tensors);

  Backend& backend_;
  CacheShape shape_;
  DType dtype_;
  int64_t block_ = 0, stride_ = 0;
  size_t memory_bytes_ = 0;
  std::unique_ptr<ReservedPages> memory_;  // of a pool
  Arena arena_;
  std::vector<KvView> views_;            // per layer, [slots, Hkv, D]
  std::unique_ptr<CacheBlocks> blocks_;  // of a pool
};

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "generate/kv_cache.h"

#include <cstdint>

#include "core/error.h"

namespace nibble {
namespace {

// Fewer would be a call of the system for every few tokens of models with large keys.
constexpr int64_t kLeastBlock = 32;

std::vector<KvView> make_views(Arena& arena, const Config& c, int64_t slots, DType dtype) {
  std::vector<KvView> views;
  for (int64_t l = 0; l < c.L; ++l) {
    const Tensor k = arena.take(dtype, {slots, c.Hkv, c.D});
    views.push_back({k, arena.take(dtype, {slots, c.Hkv, c.D})});
  }
  return views;
}

int64_t slot_bytes(const Config& c, DType dtype) {
  return c.Hkv * c.D * int64_t(dtype_bytes(dtype));
}

// The fewest slots, 32 at least, whose keys in one layer are whole pages.
int64_t block_of(const Backend& backend, const Config& c, DType dtype) {
  const auto page = int64_t(backend.traits().page_bytes);
  if (page == 0) {
    throw_usage("{} has no cache in blocks: every sequence needs the memory of its context",
                backend.name());
  }
  int64_t block = kLeastBlock;
  while (block * slot_bytes(c, dtype) % page != 0) block *= 2;
  return block;
}

size_t block_bytes(const Config& c, int64_t block, DType dtype) {
  return size_t(2 * c.L * block * slot_bytes(c, dtype));
}

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

size_t KvCache::bytes(const Config& c, int64_t slots, DType dtype) {
  Arena measure("kv cache");
  make_views(measure, c, slots, dtype);
  return measure.peak();
}

KvCache::KvCache(Backend& backend, const Config& c, const CacheShape& shape, DType dtype)
    : backend_(backend),
      shape_(shape),
      dtype_(dtype),
      stride_(shape.context),
      held_(size_t(shape.sequences)),
      arena_("kv cache") {
  if (shape.pool == 0) {
    memory_bytes_ = bytes(c, slots(), dtype);
    arena_ = Arena("kv cache", backend.allocate(memory_bytes_, "the KV cache"));
  } else {
    if (shape.pool < shape.context) {
      throw_usage("a cache of {} tokens cannot hold one context of {}", shape.pool, shape.context);
    }
    block_ = block_of(backend, c, dtype);
    stride_ = round_up(shape.context, block_);
    if (shape.sequences > INT32_MAX / stride_) {
      throw_usage("{} sequences of {} tokens were asked for, expected 1 .. {}", shape.sequences,
                  stride_, INT32_MAX / stride_);
    }
    blocks_ = free_ = blocks_of(shape.pool);
    memory_bytes_ = size_t(blocks_) * block_bytes(c, block_, dtype);
    arena_ =
        Arena("kv cache", backend.reserve(bytes(c, slots(), dtype), memory_bytes_, "the KV cache"));
  }
  views_ = make_views(arena_, c, slots(), dtype);
}

bool KvCache::hold(int64_t sequence, int64_t tokens) {
  if (block_ == 0) return true;
  int64_t& held = held_[size_t(sequence)];
  const int64_t more = blocks_of(tokens) - held;
  if (more <= 0) return true;
  if (more > free_) return false;
  free_ -= more;
  held += more;
  return true;
}

void KvCache::keep(int64_t sequence, int64_t tokens) {
  if (block_ == 0) return;
  int64_t& held = held_[size_t(sequence)];
  const int64_t kept = blocks_of(tokens), back = held - kept;
  if (back <= 0) return;
  const int64_t first = first_slot(sequence) + kept * block_;
  for (const KvView& layer : views_) {
    backend_.give_back(layer.k.slice(first, back * block_));
    backend_.give_back(layer.v.slice(first, back * block_));
  }
  held = kept;
  free_ += back;
}

}  // namespace nibble

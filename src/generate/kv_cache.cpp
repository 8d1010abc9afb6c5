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
    : backend_(backend), shape_(shape), dtype_(dtype), stride_(shape.context), arena_("kv cache") {
  if (shape.pool == 0) {
    memory_bytes_ = bytes(c, slots(), dtype);
    arena_ = Arena("kv cache", backend.allocate(memory_bytes_, "the KV cache"));
    views_ = make_views(arena_, c, slots(), dtype);
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
    const int64_t blocks = blocks_of(shape.pool), each = stride_ / block_;
    const int64_t all = CacheBlocks::names(shape.sequences, each, blocks) * block_;
    memory_bytes_ = size_t(blocks) * block_bytes(c, block_, dtype);
    memory_ = backend.reserve(bytes(c, all, dtype), memory_bytes_, "the KV cache");
    arena_ = Arena("kv cache", Buffer(memory_->data(), memory_->bytes(), {}));
    std::vector<Tensor> tensors;
    for (const KvView& v : make_views(arena_, c, all, dtype)) {
      views_.push_back({v.k.slice(0, slots()), v.v.slice(0, slots())});
      tensors.insert(tensors.end(), {v.k, v.v});
    }
    // Half of what the system gives; the other half is for the rest of us, and for blocks whose own
    // place is taken.
    const int64_t breaks = most_mappings() / 2 / int64_t(tensors.size());
    blocks_ = std::make_unique<CacheBlocks>(shape.sequences, each, blocks, block_, breaks,
                                            block_memory(std::move(tensors)));
  }
}

// `tensors` have the slots of all names.
CacheBlocks::Memory KvCache::block_memory(std::vector<Tensor> tensors) {
  const auto part = [block = block_](const Tensor& t, int64_t first, int64_t n) {
    return t.slice(first * block, n * block);
  };
  const auto offset = [this](const Tensor& t) { return size_t(t.data - memory_->data()); };
  CacheBlocks::Memory m;
  m.show = [=, this](int64_t at, int64_t name, int64_t n) {
    for (const Tensor& t : tensors) {
      const Tensor to = part(t, at, n);
      memory_->show(offset(to), offset(part(t, name, n)), to.bytes());
    }
  };
  m.give_back = [=, this](int64_t name, int64_t n) {
    for (const Tensor& t : tensors) {
      const Tensor pages = part(t, name, n);
      memory_->give_back(offset(pages), pages.bytes());
    }
  };
  m.copy = [=, this](int64_t to, int64_t from, int64_t slots) {
    for (const Tensor& t : tensors)
      backend_.copy(t.slice(to * block_, slots), t.slice(from * block_, slots));
  };
  return m;
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "generate/kv_cache.h"

namespace nibble {
namespace {

std::vector<KvView> make_views(Arena& arena, const Config& c, int64_t slots, DType dtype) {
  std::vector<KvView> views;
  for (int64_t l = 0; l < c.L; ++l) {
    const Tensor k = arena.take(dtype, {slots, c.Hkv, c.D});
    views.push_back({k, arena.take(dtype, {slots, c.Hkv, c.D})});
  }
  return views;
}

}  // namespace

size_t KvCache::bytes(const Config& c, int64_t slots, DType dtype) {
  Arena measure("kv cache");
  make_views(measure, c, slots, dtype);
  return measure.peak();
}

KvCache::KvCache(Backend& backend, const Config& c, int64_t slots, DType dtype)
    : arena_("kv cache", backend.allocate(bytes(c, slots, dtype), "the KV cache")),
      views_(make_views(arena_, c, slots, dtype)),
      slots_(slots),
      dtype_(dtype) {}

}  // namespace nibble

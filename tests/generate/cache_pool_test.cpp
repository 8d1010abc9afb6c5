// SPDX-License-Identifier: MIT
// Sequences that share the memory of a pool give the bits of sequences that have their contexts,
// and take the memory that is said.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "core/rng.h"
#include "generate/batch_engine.h"
#include "support/backends.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

struct PoolCase {
  std::string name;
  BackendCase backend;
  DType cache;
};
std::vector<PoolCase> pool_cases() {
  const auto backends = backend_cases();
  return {{"reference", backends[0], DType::f64},
          {"tested", backends[1], DType::f32},
          {"tested_bf16_cache", backends[1], DType::bf16},
          {"tested_f8_cache", backends[1], DType::f8_e4m3}};
}

class CachePoolEngine : public testing::TestWithParam<PoolCase> {
 protected:
  void SetUp() override {
    backend_ = GetParam().backend.make();
    if (backend_->traits().page_bytes == 0) GTEST_SKIP() << "a backend without a cache in blocks";
    LoadOptions load;
    load.dtype = GetParam().backend.weights;
    load.recipe = Recipe::nvfp4;
    toy_ = load_toy(*backend_, toy_config(), load);
  }
  EngineOptions options(int64_t pool) const {
    const PoolCase& p = GetParam();
    return {kContext, 24, p.backend.compute, p.backend.stat, p.cache, Activations::none, pool};
  }
  static constexpr int64_t kContext = 500, kSequences = 5;  // no multiple of a block
  std::unique_ptr<Backend> backend_;
  ToyModel toy_;
};

TEST_P(CachePoolEngine, SameBitsAsContexts) {
  BatchEngine whole(*backend_, toy_.model, options(0), kSequences);
  BatchEngine pool(*backend_, toy_.model, options(2 * kContext), kSequences);
  auto draw = [n = uint64_t(0)](int64_t below) mutable {
    return int64_t(philox(3, 1, n++)[0] % uint64_t(below));
  };
  int full = 0, copies = 0;
  int64_t most_saved = 0;
  for (int round = 0; round < 150; ++round) {
    const int64_t s = draw(kSequences);
    const auto tokens = random_tokens(1 + draw(120), 160, uint64_t(round));
    const int64_t what = draw(10);
    const auto n = int64_t(tokens.size());
    if (what == 0) {
      const int64_t to = draw(pool.length(s) + 1);
      whole.truncate(s, to), pool.truncate(s, to);
    } else if (what == 1) {
      const int64_t from = (s + 1) % kSequences, length = pool.length(from) / 2;
      whole.truncate(s, 0), pool.truncate(s, 0);
      whole.copy_prefix(from, s, length), pool.copy_prefix(from, s, length);
      ++copies;
    } else if (what < 5) {  // a step of all that have room
      std::vector<DecodeStep> steps;
      for (int64_t i = 0; i < kSequences; ++i) {
        if (pool.length(i) == 0 || pool.room(i) == 0) continue;
        if (pool.cache().hold(i, pool.length(i) + 1)) steps.push_back({i, tokens[0], {}, 0});
      }
      if (steps.empty()) continue;
      whole.step(steps), pool.step(steps);
      EXPECT_EQ(whole.logits(), pool.logits()) << round;
    } else if (n <= pool.room(s)) {
      if (!pool.cache().hold(s, pool.length(s) + n)) {
        const int64_t before = pool.length(s), held = pool.cache().blocks().held(s);
        EXPECT_THROW(pool.feed(s, tokens), PoolFull);
        EXPECT_EQ(pool.length(s), before);
        EXPECT_EQ(pool.cache().blocks().held(s), held);
        ++full;
        whole.truncate(s, 0), pool.truncate(s, 0);
        if (!pool.cache().hold(s, n)) continue;
      }
      whole.feed(s, tokens), pool.feed(s, tokens);
      EXPECT_EQ(whole.logits(), pool.logits()) << round;
    }
    const KvCache& c = pool.cache();
    int64_t held = 0;
    for (int64_t i = 0; i < kSequences; ++i) {
      EXPECT_EQ(whole.tokens(i), pool.tokens(i));
      EXPECT_GE(c.blocks().held(i) * c.block(), pool.length(i));
      held += c.blocks().held(i);
    }
    EXPECT_EQ(held - c.blocks().saved() + c.blocks().free(), c.blocks().blocks());
    EXPECT_LE(c.used_bytes(), c.memory_bytes());
    most_saved = std::max(most_saved, c.blocks().saved());
  }
  EXPECT_GT(full, 3);
  EXPECT_GT(copies, 3);
  EXPECT_GT(most_saved, 1);
}

size_t resident_bytes(const BatchEngine& engine, size_t page) {
  size_t bytes = 0;
  for (const KvView& layer : engine.cache().views()) {
    for (const Tensor& t : {layer.k, layer.v}) {
      std::vector<unsigned char> pages((t.bytes() + page - 1) / page);
      EXPECT_EQ(mincore(t.data, t.bytes(), pages.data()), 0);
      for (const unsigned char p : pages) bytes += (p & 1) * page;
    }
  }
  return bytes;
}

// To the byte: a pool that is full has the memory that was said, one that is empty none.
TEST_P(CachePoolEngine, TakesTheMemoryThatIsSaid) {
  BatchEngine engine(*backend_, toy_.model, options(2 * kContext), kSequences);
  const KvCache& cache = engine.cache();
  const size_t page = backend_->traits().page_bytes;
  EXPECT_EQ(resident_bytes(engine, page), 0u);
  for (int time = 0; time < 2; ++time) {
    for (int64_t s = 0; cache.blocks().free() > 0; s = (s + 1) % kSequences) {
      const int64_t n = std::min(cache.block(), engine.room(s));
      if (n > 0) engine.feed(s, random_tokens(n, 160, 1));
    }
    int64_t tokens = 0;
    for (int64_t s = 0; s < kSequences; ++s) tokens += engine.length(s);
    // Of a sequence's last block that part is there which has tokens.
    const double used = double(tokens) / double(cache.blocks().blocks() * cache.block());
    EXPECT_LE(resident_bytes(engine, page), cache.memory_bytes());
    EXPECT_GE(double(resident_bytes(engine, page)), used * double(cache.memory_bytes()));
    EXPECT_GE(used, 0.97);
    EXPECT_EQ(resident_bytes(engine, page), cache.used_bytes());
    for (int64_t s = 0; s < kSequences; ++s) engine.truncate(s, 0);
    EXPECT_EQ(resident_bytes(engine, page), 0u);
  }
}

// Sequences that begin alike take the memory of one, and of what each says besides.
TEST_P(CachePoolEngine, ACommonBeginningTakesItsMemoryOnce) {
  BatchEngine whole(*backend_, toy_.model, options(0), kSequences);
  BatchEngine pool(*backend_, toy_.model, options(2 * kContext), kSequences);
  const KvCache& cache = pool.cache();
  const int64_t block = cache.block(), common = kContext / 2 / block * block + 5;
  const auto beginning = random_tokens(common, 160, 7);
  for (BatchEngine* e : {&whole, &pool}) {
    e->feed(0, beginning);
    for (int64_t s = 1; s < kSequences; ++s) e->copy_prefix(0, s, common);
  }
  const int64_t one = cache.blocks_of(common);
  EXPECT_EQ(cache.blocks().blocks() - cache.blocks().free(), one);
  const size_t before = cache.used_bytes();
  EXPECT_LE(before, cache.memory_bytes() / size_t(cache.blocks().blocks()) * size_t(one));
  std::vector<DecodeStep> steps;
  for (int64_t s = 0; s < kSequences; ++s) steps.push_back({s, int32_t(s), {}, 0});
  for (int i = 0; i < 4; ++i) {
    whole.step(steps), pool.step(steps);
    EXPECT_EQ(whole.logits(), pool.logits()) << i;
  }
  // The first wrote on where it was; each of the others has the block in which it goes on.
  EXPECT_EQ(cache.blocks().blocks() - cache.blocks().free(), one + kSequences - 1);
  // Whoever leaves takes nothing with him that others need.
  pool.truncate(0, 0), whole.truncate(0, 0);
  pool.truncate(1, 3), whole.truncate(1, 3);
  const auto other = random_tokens(40, 160, 8);
  pool.feed(0, other), whole.feed(0, other);
  pool.feed(1, other), whole.feed(1, other);
  EXPECT_EQ(whole.logits(), pool.logits());
  for (int i = 0; i < 4; ++i) {
    whole.step(steps), pool.step(steps);
    EXPECT_EQ(whole.logits(), pool.logits()) << i;
  }
  for (int64_t s = 0; s < kSequences; ++s) pool.truncate(s, 0);
  EXPECT_EQ(cache.used_bytes(), 0u);
  EXPECT_EQ(cache.blocks().free(), cache.blocks().blocks());
}

TEST_P(CachePoolEngine, WhatCannotBeIsRefused) {
  EXPECT_THROW(BatchEngine(*backend_, toy_.model, options(kContext - 1), 2), UsageError);
  EXPECT_THROW(BatchEngine(*backend_, toy_.model, options(kContext), INT32_MAX / kContext),
               UsageError);  // 500 fit, the 512 of its blocks do not
}

INSTANTIATE_TEST_SUITE_P(Caches, CachePoolEngine, testing::ValuesIn(pool_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nibble::test

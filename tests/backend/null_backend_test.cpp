// SPDX-License-Identifier: MIT
// A dry run of the real wiring finds the size of every arena: the run then fits with no slack.
#include "backend/null_backend.h"

#include <gtest/gtest.h>

#include "model/decoder.h"
#include "support/ref_backend.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

struct Memory {
  Batch batch;
  Weights weights;
  Acts acts;
};

Memory make_memory(Arena& arena, const Backend& backend, const Config& c, int64_t n,
                   int64_t outputs, Keep keep) {
  WeightLayout layout;
  layout.embed = layout.norm = DType::f64;
  layout.linear.assign(size_t(c.L) * 4, LinearLayout{});  // packed
  layout.head.dense = DType::f64;
  layout.head_is_embed = true;
  Memory m;
  m.weights = make_weights(arena, backend, c, layout);
  m.batch.ids = arena.take(DType::i32, {n});
  m.batch.positions = arena.take(DType::i32, {n});
  m.batch.slots = arena.take(DType::i32, {n});
  m.batch.sequences = arena.take(DType::i32, {1, 4});
  m.batch.out_rows = arena.take(DType::i32, {outputs});
  m.acts = make_acts(arena, c, {n, outputs, DType::f64, DType::f64, keep});
  return m;
}

class NullBackendOf : public testing::TestWithParam<Config> {};
INSTANTIATE_TEST_SUITE_P(Families, NullBackendOf,
                         testing::Values(toy_config(), toy_qwen2_config(), toy_llama_config()));

TEST_P(NullBackendOf, DryRunMeasuresEveryArenaExactly) {
  const Config c = GetParam();
  RefBackend<double> backend;
  for (const Keep keep : {Keep::none, Keep::inputs, Keep::all}) {
    NullBackend dry(backend);
    Arena measure("all");
    Memory m = make_memory(measure, dry, c, 5, 2, keep);
    // Training takes the head in pieces of its own.
    const auto pass = [&](Backend& be, Memory& memory) {
      const auto kv = kv_of_acts(memory.acts, c);
      if (keep == Keep::none) {
        forward(be, c, memory.weights, memory.batch, memory.acts, kv, Activations::none);
      } else {
        forward_hidden(be, c, memory.weights, memory.batch, memory.acts, kv, Activations::none);
      }
    };
    pass(dry, m);
    // embed, table, norm; eleven ops a block, and the bias of values; gather, norm, head
    const int64_t ops = c.qkv_bias ? 12 : 11;
    EXPECT_EQ(dry.calls(), 3 + c.L * ops + (keep == Keep::none ? 3 : 2));

    const size_t bytes = measure.peak();
    Arena exact("all", backend.allocate(bytes, "test"));
    Memory real = make_memory(exact, backend, c, 5, 2, keep);
    real.batch.sequences.as<int32_t>()[1] = real.batch.sequences.as<int32_t>()[3] = 5;
    EXPECT_NO_THROW(pass(backend, real));
    EXPECT_EQ(exact.used(), bytes);
    EXPECT_THROW(exact.take(DType::f64, {1}), InternalError);
  }
}

TEST(NullBackend, RecomputeKeepsLessThanKeepAll) {
  const Config c = toy_config();
  RefBackend<double> backend;
  const auto bytes = [&](Keep keep) {
    Arena a("acts");
    make_acts(a, c, {64, 1, DType::f64, DType::f64, keep});
    return a.peak();
  };
  EXPECT_LT(bytes(Keep::none), bytes(Keep::inputs));
  EXPECT_LT(bytes(Keep::inputs), bytes(Keep::all));
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// What a training run keeps: nothing for what is frozen, as planned, without growing; and what it
// leaves alone when a step fails.
#include <gtest/gtest.h>

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "backend/download.h"
#include "backends/cpu/memory.h"
#include "support/tested_backend.h"
#include "train/run_support.h"

// Bytes the program holds through new, counted for SteadyState.
static std::atomic<int64_t> g_live_bytes{0};
void* operator new(size_t n) {
  void* p = std::malloc(n);
  if (!p) throw std::bad_alloc();
  g_live_bytes += int64_t(::malloc_usable_size(p));
  return p;
}
void operator delete(void* p) noexcept {
  if (p) g_live_bytes -= int64_t(::malloc_usable_size(p));
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
// Every form that this delete may be given: std::stable_sort takes its memory from this one, and a
// sanitizer's own would not be for free() to release.
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  void* p = std::malloc(n);
  if (p) g_live_bytes += int64_t(::malloc_usable_size(p));
  return p;
}
void operator delete(void* p, const std::nothrow_t&) noexcept { operator delete(p); }
void* operator new[](size_t n) { return operator new(n); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete[](void* p, size_t) noexcept { operator delete(p); }

namespace nibble::test {
namespace {

// Of the master, or of the NVFP4 weight where there is no master.
std::vector<std::byte> stored_bytes(TrainState& state, const ParamSpec& p) {
  std::vector<std::byte> bytes;
  if (const Tensor master = state.master_of(p)) {
    bytes.resize(master.bytes());
    state.backend().download(bytes.data(), master);
    return bytes;
  }
  std::vector<uint8_t> codes(size_t(p.numel() / 2)), scales(size_t(p.numel() / 16));
  state.backend().unpack_rows(*state.packed_of(p), p.row_offset, p.shape[0], codes, scales);
  for (const auto* v : {&codes, &scales}) {
    for (const uint8_t b : *v) bytes.push_back(std::byte(b));
  }
  return bytes;
}

TEST(Freezing, FrozenParametersHaveNothingAndStay) {
  const Config c = train_config(false);
  TrainSettings s = default_settings();
  s.lr_scale = {{"k_proj", 0}, {"embed_tokens", 0}, {"layers.0-1", 0}, {"norm", 0}};
  const auto be = make_model_backend(2);
  TrainToy toy(*be, c, s);
  TrainState& state = *toy.state;
  const auto values = [&](const ParamSpec& p) { return stored_bytes(state, p); };
  std::vector<std::vector<std::byte>> before;
  for (const ParamSpec& p : state.groups().table) before.push_back(values(p));
  Trainer trainer(state);
  for (int64_t i = 0; i < 3; ++i) {
    const PackedBatch b = batch_of_step(c, i);
    trainer.step(std::span(&b, 1));
  }
  int64_t moved = 0;
  for (size_t i = 0; i < state.groups().table.size(); ++i) {
    const ParamSpec& p = state.groups().table[i];
    const bool frozen = state.groups().scale[i] == 0;
    EXPECT_EQ(bool(state.tensors().moments[i].m), !frozen) << p.name;
    EXPECT_EQ(bool(grad_of(state.tensors().grads, p)), !frozen) << p.name;
    const bool same = before[i] == values(p);
    EXPECT_EQ(same, frozen) << p.name;
    moved += !same;
  }
  EXPECT_GT(moved, 4);
}

// What is frozen and computed with as NVFP4 lives as NVFP4 only; where one of a stacked weight's
// parameters is trained, and where the recipe is dense, the master stays.
TEST(Freezing, FrozenMastersAreNotKept) {
  const Config c = train_config(false);
  TrainSettings s = default_settings();
  const auto be = make_model_backend(1);
  const auto masters = [&](const TrainSettings& settings) {
    return plan_arenas(*be, c, make_param_groups(c, settings), settings, false)[0].bytes;
  };
  const size_t all = masters(s);
  const size_t layer = 2 * size_t(c.qkv_rows() * c.C + c.C * c.Hq * c.D + 3 * c.F * c.C);
  const size_t head = 2 * size_t(c.V * c.C);
  s.train_last_layers = 1;
  EXPECT_EQ(all - masters(s), 2 * layer + head);
  s.recipe = Recipe::bf16;
  EXPECT_EQ(all, masters(s));
  s.recipe = Recipe::nvfp4;
  s.head_recipe = Recipe::bf16;
  EXPECT_EQ(all - masters(s), 2 * layer);
  s.head_recipe.reset();
  s.train_last_layers = 0;
  s.lr_scale = {{"k_proj", 0}};
  EXPECT_EQ(all, masters(s));
  for (const MemoryMode memory : {MemoryMode::resident, MemoryMode::remake}) {
    s.memory = memory;
    s.lr_scale = {{"layers.0-1", 0}, {"lm_head", 0}};
    TrainToy toy(*be, c, s);
    for (size_t i = 0; i < toy.state->groups().table.size(); ++i) {
      const ParamSpec& p = toy.state->groups().table[i];
      const bool trained = toy.state->groups().trained[i];
      EXPECT_EQ(bool(toy.state->master_of(p)), trained || !p.is_linear()) << p.name;
      if (p.is_linear() && !trained) {
        EXPECT_NE(toy.state->packed_of(p), nullptr) << p.name;
      }
    }
  }
}

// All memory modes train the rest alike, and take what they planned.
TEST(Freezing, MemoryModesAgree) {
  for (const bool tied : {true, false}) {
    const Config c = train_config(tied);
    TrainSettings s = default_settings();
    s.optimizer.grad_clip = 0;
    s.lr_scale = {{"layers.0", 0}, {"layers.2.mlp", 0}, {"k_proj", 0}};
    if (!tied) s.lr_scale.push_back({"lm_head", 0});
    const auto be = make_model_backend(2);
    std::vector<std::vector<std::byte>> results;
    for (const MemoryMode m : kMemoryModes) {
      s.memory = m;
      TrainToy toy(*be, c, s);
      const auto plan = plan_arenas(*be, c, toy.state->groups(), s, false);
      const auto arenas = toy.state->arenas().all();
      for (size_t i = 0; i < plan.size(); ++i) EXPECT_EQ(plan[i].bytes, arenas[i]->capacity());
      Trainer trainer(*toy.state);
      for (int64_t i = 0; i < 3; ++i) {
        const PackedBatch b = batch_of_step(c, i);
        trainer.step(std::span(&b, 1));
      }
      results.emplace_back();
      for (size_t i = 0; i < toy.state->groups().table.size(); ++i) {
        if (!toy.state->groups().trained[i]) continue;
        const auto bytes = stored_bytes(*toy.state, toy.state->groups().table[i]);
        results.back().insert(results.back().end(), bytes.begin(), bytes.end());
      }
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[0], results[3]);
  }
}

// The scalar loss has no gradient for a head of its own: it must not be updated from memory that
// other gradients were in.
TEST(Freezing, ScalarLossLeavesTheHeadAlone) {
  const Config c = train_config(false);
  TrainSettings s = default_settings();
  s.loss = LossKind::scalar;
  s.optimizer.weight_decay = 0.5;
  for (const MemoryMode m : kMemoryModes) {
    s.memory = m;
    const auto be = make_model_backend(1);
    TrainToy toy(*be, c, s);
    const ParamSpec& head = toy.state->groups().table.back();
    ASSERT_EQ(head.slot, ParamSlot::head);
    const auto before = stored_bytes(*toy.state, head);
    Trainer trainer(*toy.state);
    for (int64_t i = 0; i < 3; ++i) {
      const PackedBatch b = batch_of_step(c, i);
      EXPECT_FALSE(trainer.step(std::span(&b, 1)).skipped);
    }
    EXPECT_EQ(before, stored_bytes(*toy.state, head));
  }
}

TEST(Freezing, WhatIsTrainedIsSaid) {
  const auto text = [](bool tied, std::vector<LrScale> scales, int64_t last = 0) {
    TrainSettings s = default_settings();
    s.lr_scale = std::move(scales);
    s.train_last_layers = last;
    return make_param_groups(train_config(tied), s).describe();
  };
  for (const bool tied : {true, false}) {
    EXPECT_TRUE(text(tied, {}).starts_with("full-parameter")) << text(tied, {});
    EXPECT_TRUE(text(tied, {{"embed_tokens", 0.5}}).starts_with("full-parameter"));
    EXPECT_TRUE(text(tied, {{"embed_tokens", 0}}).starts_with("part of the parameters"));
    EXPECT_TRUE(text(tied, {}, 1).starts_with("part of the parameters"));
  }
  // A factor for what is frozen already would do nothing.
  EXPECT_THROW(text(false, {{"lm_head", 5}}, 1), UsageError);
  EXPECT_THROW(text(false, {{"layers.0-1", 0.5}}, 1), UsageError);
  EXPECT_NO_THROW(text(false, {{"layers.1-2", 0.5}}, 1));
  EXPECT_NO_THROW(text(false, {{"lm_head", 0}}, 1));
}

// Rows beyond any parameter's are all of them, also where a product would overflow.
TEST(Chunks, LargestChunk) {
  const Config c = train_config();
  TrainSettings s = default_settings();
  const auto be = make_model_backend(1);
  std::vector<std::vector<std::byte>> results;
  for (const int64_t rows : {int64_t(0), int64_t(1) << 57, std::numeric_limits<int64_t>::max()}) {
    s.optimizer.chunk_rows = rows;
    TrainToy toy(*be, c, s);
    Trainer trainer(*toy.state);
    const PackedBatch b = batch_of_step(c, 0);
    trainer.step(std::span(&b, 1));
    results.push_back(all_bits(*toy.state));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// Nothing is taken from the system after the first step of the largest batch, and what the heap
// lends during a step comes back.
TEST(SteadyState, NothingGrows) {
  const Config c = train_config();
  for (const MemoryMode memory : kMemoryModes) {
    TrainSettings s = default_settings();
    s.memory = memory;
    const auto be = make_model_backend(2);
    TrainToy toy(*be, c, s);
    Trainer trainer(*toy.state);
    const auto step = [&](int64_t longest, uint64_t seed) {
      const PackedBatch b = random_batch({longest, 12}, c.V, seed);
      trainer.step(std::span(&b, 1));
    };
    step(52, 1);  // as planned: 64 tokens
    step(52, 2);
    std::vector<size_t> capacities;
    for (const Arena* a : toy.state->arenas().all()) capacities.push_back(a->capacity());
    const uint64_t allocations = cpu::allocation_count();
    const int64_t heap = g_live_bytes;
    for (uint64_t i = 0; i < 10; ++i) step(10 + int64_t(i) * 4, 3 + i);
    EXPECT_EQ(cpu::allocation_count(), allocations);
    EXPECT_EQ(g_live_bytes, heap);
    for (size_t i = 0; i < capacities.size(); ++i) {
      EXPECT_EQ(toy.state->arenas().all()[i]->capacity(), capacities[i]);
      EXPECT_LE(toy.state->arenas().all()[i]->peak(), capacities[i]);
    }
  }
}

// The plan is made by the code that takes the memory, and the memory is used up to the last byte.
TEST(Planning, ArenasAreExactlyAsPlanned) {
  for (const Recompute recompute : kRecomputes) {
    for (const MemoryMode memory : kMemoryModes) {
      TrainSettings s = default_settings();
      s.memory = memory;
      s.recompute = recompute;
      const Config c = train_config(false);
      const auto be = make_model_backend(1);
      TrainToy toy(*be, c, s);
      const auto plan = plan_arenas(*be, c, make_param_groups(c, s), s, false);
      Trainer trainer(*toy.state);
      const PackedBatch b = random_batch({40, 24}, c.V, 1);
      trainer.step(std::span(&b, 1));
      const auto arenas = toy.state->arenas().all();
      for (size_t i = 0; i < plan.size(); ++i) {
        EXPECT_EQ(plan[i].name, arenas[i]->name());
        EXPECT_EQ(plan[i].bytes, arenas[i]->capacity()) << plan[i].name;
        // Only the table of sequences was planned for more of them.
        EXPECT_GE(arenas[i]->peak() + 8 * Arena::kAlignment, plan[i].bytes) << plan[i].name;
      }
    }
  }
}

// A step whose loss is not finite changes nothing but the counters.
// A source that counts what is read of one tensor.
class CountingSource final : public TensorSource {
 public:
  CountingSource(const TensorSource& base, std::string_view counted)
      : TensorSource(Virtual{}, base.format(), base.tensors(), base.metadata()),
        base_(base),
        counted_(counted) {}
  void read(const TensorInfo& t, uint64_t offset, std::span<std::byte> out) const override {
    if (t.name == counted_) bytes_ += out.size();
    base_.read(base_.at(t.name), offset, out);
  }
  // How often the whole of it was read since this was asked last.
  double times() const { return double(bytes_.exchange(0)) / double(at(counted_).n_bytes); }

 private:
  const TensorSource& base_;
  std::string counted_;
  mutable std::atomic<uint64_t> bytes_{0};
};

// config.json says tied, the file has a head of its own.
TEST(TrainingConfig, TheHeadIsReadOnceToTellAndOnceToLoad) {
  Config c = train_config(false);
  const TemporaryDirectory dir("head");
  write_toy_weights(c, dir.path() / "model.safetensors");
  c.tied = true;
  const auto file = open_tensor_source(dir.path() / "model.safetensors");
  const CountingSource source(*file, kHeadName);
  const auto be = make_model_backend(2);
  const TrainSettings s = default_settings();
  const Config trained = training_config(c, source, s.untie);
  EXPECT_FALSE(trained.tied);
  EXPECT_EQ(source.times(), 1);
  EXPECT_FALSE(TrainState(*be, c, source, s, trained).config().tied);
  EXPECT_EQ(source.times(), 1);
  EXPECT_FALSE(TrainState(*be, c, source, s).config().tied);
  EXPECT_EQ(source.times(), 2);
}

TEST(Skipping, NonFiniteLoss) {
  const Config c = train_config();
  TrainSettings s = default_settings();
  const auto be = make_model_backend(1);
  TrainToy toy(*be, c, s);
  TrainState& state = *toy.state;
  const std::vector<float> bad(size_t(c.C), std::numeric_limits<float>::quiet_NaN());
  const Tensor norm = state.tensors().master.final_norm;
  const auto good = download_floats(*be, norm);
  be->upload(norm, bad.data());
  const auto bits = all_bits(state);
  Trainer trainer(state);
  const PackedBatch b = batch_of_step(c, 0);
  const StepResult r = trainer.step(std::span(&b, 1));
  EXPECT_TRUE(r.skipped);
  EXPECT_NE(r.problem.find("loss"), std::string::npos);
  EXPECT_EQ(std::memcmp(bits.data(), all_bits(state).data(), bits.size()), 0);
  EXPECT_EQ(trainer.progress.updates, 0);
  EXPECT_EQ(trainer.progress.skipped, 1);
  be->upload(norm, good.data());
  EXPECT_FALSE(trainer.step(std::span(&b, 1)).skipped);
}

}  // namespace
}  // namespace nibble::test

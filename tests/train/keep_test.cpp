// SPDX-License-Identifier: MIT
// Rows that are kept: nothing happens while the model still is its teacher, every way of running
// gives the same bits, and what is measured is the divergence of the two models' logits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/download.h"
#include "model/evaluate.h"
#include "support/tested_backend.h"
#include "train/checkpoint.h"
#include "train/keep_support.h"

namespace nibble::test {
namespace {

PackedBatch mixed_of_step(const Config& c, int64_t step, int64_t micro = 0) {
  return mixed_batch({9, 5}, {17, 6}, c.V, uint64_t(step * 10 + micro + 1));
}

struct KeepVariant {
  const char* name;
  bool tied;
  DType compute;
  Recipe recipe;
  ToyFamily family = ToyFamily::qwen3;
};

class Keep : public testing::TestWithParam<KeepVariant> {
 protected:
  void SetUp() override {
    config_ = train_config(GetParam().tied, GetParam().family);
    settings_ = keep_settings();
    settings_.compute = GetParam().compute;
    settings_.recipe = GetParam().recipe;
  }
  bool possible(MemoryMode mode) const {
    return mode != MemoryMode::host || settings_.recipe == Recipe::nvfp4;
  }
  struct Result {
    std::vector<std::byte> bits;
    std::vector<double> losses;
    bool operator==(const Result&) const = default;
  };
  Result run(int64_t steps, int threads = 2, int64_t accumulate = 1) const {
    const auto be = make_model_backend(threads);
    TrainToy toy(*be, config_, settings_);
    Trainer trainer(*toy.state);
    // No gradient overflows with it: a step that is skipped in one mode is half taken in another.
    if (settings_.compute == DType::f16) trainer.progress.loss_scale = 256;
    Result r;
    for (int64_t i = 0; i < steps; ++i) {
      std::vector<PackedBatch> micro;
      for (int64_t m = 0; m < accumulate; ++m) micro.push_back(mixed_of_step(config_, i, m));
      const StepResult step = trainer.step(micro);
      r.losses.insert(r.losses.end(), {step.loss, *step.taught_loss, *step.kept_loss});
    }
    r.bits = all_bits(*toy.state);
    return r;
  }
  Config config_;
  TrainSettings settings_;
};

// A batch of nothing but kept rows, the model its own teacher: loss and gradients are 0 and not a
// bit of the weights changes, in every memory mode.
TEST_P(Keep, TheStartItselfChangesNothing) {
  settings_.optimizer.weight_decay = 0;
  const auto be = make_model_backend(2);
  for (const MemoryMode mode : kMemoryModes) {
    if (!possible(mode)) continue;
    SCOPED_TRACE(memory_mode_name(mode));
    settings_.memory = mode;
    TrainToy toy(*be, config_, settings_);
    Trainer trainer(*toy.state);
    const std::vector<std::byte> before = weight_bits(*toy.state);
    const PackedBatch b = mixed_batch({}, {17, 5, 9}, config_.V, 3);
    EXPECT_EQ(b.taught(), 0);
    for (int i = 0; i < 2; ++i) {
      const StepResult r = trainer.step(std::span(&b, 1));
      EXPECT_EQ(r.loss, 0);
      EXPECT_EQ(*r.kept_loss, 0);
      EXPECT_FALSE(r.taught_loss);
      EXPECT_EQ(r.grad_norm, 0);
      EXPECT_EQ(r.kept, 31);
      EXPECT_FALSE(r.skipped);
    }
    EXPECT_TRUE(before == weight_bits(*toy.state));
  }
}

TEST_P(Keep, RecomputeAndThreadsDoNotShow) {
  const Result plain = run(3);
  EXPECT_TRUE(plain == run(3, 3));
  for (const Recompute r : {Recompute::mlp, Recompute::block}) {
    settings_.recompute = r;
    EXPECT_TRUE(plain == run(3)) << recompute_name(r);
  }
}

TEST_P(Keep, MemoryModesDoNotShow) {
  settings_.optimizer.grad_clip = 0;  // which released gradients take from the step before
  const Result resident = run(3);
  EXPECT_GT(resident.losses.back(), 0);
  for (const MemoryMode mode : {MemoryMode::release, MemoryMode::host}) {
    if (!possible(mode)) continue;
    settings_.memory = mode;
    EXPECT_TRUE(resident == run(3)) << memory_mode_name(mode);
  }
  // The toy's file is dense, so NVFP4 made on demand is what the others have.
  settings_.memory = MemoryMode::remake;
  EXPECT_EQ(resident.losses, run(3).losses);
}

TEST_P(Keep, MicroBatchesAreWeighedTogether) {
  settings_.optimizer.grad_clip = 0;
  const auto be = make_model_backend(2);
  TrainToy one(*be, config_, settings_), two(*be, config_, settings_);
  Trainer whole(*one.state), parts(*two.state);
  const PackedBatch first = mixed_of_step(config_, 0);
  for (Trainer* t : {&whole, &parts}) t->step(std::span(&first, 1));  // away from the start
  // One batch of two samples each, or one sample of each kind at a time.
  const RandomSamples taught({9, 5}, config_.V, 5), kept({17, 6}, config_.V, 6);
  PackedBatch all;
  pack(all, taught.all(), kept.all());
  std::vector<PackedBatch> micro(2);
  for (size_t i = 0; i < 2; ++i)
    pack(micro[i], taught.all().subspan(i, 1), kept.all().subspan(i, 1));
  const StepResult a = whole.step(std::span(&all, 1)), b = parts.step(micro);
  const double close = settings_.compute == DType::f32 ? 1e-4 : 2e-2;
  EXPECT_NEAR(a.loss, b.loss, close * a.loss);
  EXPECT_NEAR(*a.kept_loss, *b.kept_loss, close * *a.kept_loss + 1e-6);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 5 * close * a.grad_norm);
  EXPECT_EQ(a.kept, b.kept);
}

TEST_P(Keep, Resume) {
  const Result whole = run(5);
  TemporaryDirectory dir("keep-resume");
  const auto be = make_model_backend(2);
  TrainToy toy(*be, config_, settings_);
  const RunIdentity identity = run_identity(config_, settings_);
  EXPECT_EQ(identity.at("keep-weight"), "2");
  {
    Trainer trainer(*toy.state);
    if (settings_.compute == DType::f16) trainer.progress.loss_scale = 256;
    for (int64_t i = 0; i < 3; ++i) {
      const PackedBatch b = mixed_of_step(config_, i);
      trainer.step(std::span(&b, 1));
    }
    save_checkpoint(dir.path(), *toy.state, {trainer.progress, 3}, identity, 1);
  }
  TrainState state(*be, config_, *toy.source, settings_);
  Trainer trainer(state);
  trainer.progress = load_checkpoint(dir.path() / checkpoint_name(3), state, identity).trainer;
  for (int64_t i = 3; i < 5; ++i) {
    const PackedBatch b = mixed_of_step(config_, i);
    EXPECT_EQ(trainer.step(std::span(&b, 1)).loss, whole.losses[size_t(3 * i)]);
  }
  EXPECT_TRUE(all_bits(state) == whole.bits);
  TrainSettings other = settings_;
  other.keep.weight = 3;
  EXPECT_THROW(
      load_checkpoint(dir.path() / checkpoint_name(3), state, run_identity(config_, other)),
      UsageError);
}

INSTANTIATE_TEST_SUITE_P(
    All, Keep,
    testing::Values(KeepVariant{"tied_nvfp4", true, DType::f32, Recipe::nvfp4},
                    KeepVariant{"untied_nvfp4_bf16", false, DType::bf16, Recipe::nvfp4},
                    KeepVariant{"tied_dense", true, DType::f32, Recipe::bf16},
                    KeepVariant{"untied_dense_fp16", false, DType::f16, Recipe::bf16},
                    KeepVariant{"qwen2_nvfp4", true, DType::f32, Recipe::nvfp4, ToyFamily::qwen2}),
    [](const auto& info) { return std::string(info.param.name); });

// Same steps on the taught rows, with and without kept ones: what the model says elsewhere moves
// less.
TEST(KeepRows, HoldTheModelWhereItWas) {
  const Config c = train_config();
  const auto be = make_model_backend(2);
  const PackedBatch elsewhere = mixed_batch({}, {20, 20}, c.V, 77);
  const auto moved = [&](bool keeps) {
    TrainSettings s = keep_settings();
    s.keep.weight = 20;
    TrainToy toy(*be, c, s);
    Trainer trainer(*toy.state);
    const RandomSamples taught({9, 9}, c.V, 5), kept({20, 20}, c.V, 1077);
    PackedBatch b;
    pack(b, taught.all(), keeps ? kept.all() : std::span<const Sample>{});
    double before = 0, after = 0;
    for (int i = 0; i < 20; ++i) {
      const StepResult r = trainer.step(std::span(&b, 1));
      (i == 0 ? before : after) = *r.taught_loss;
    }
    EXPECT_LT(after, 0.8 * before);
    return trainer.evaluate(elsewhere) / s.keep.weight;
  };
  const double with = moved(true), without = moved(false);
  EXPECT_GT(without, 0.01);
  EXPECT_LT(with, 0.5 * without);
}

double divergence_of(const std::vector<float>& teacher, const std::vector<float>& model,
                     int64_t V) {
  double sum = 0;
  const auto log_sum = [&](const float* z) {
    double largest = -1e300, total = 0;
    for (int64_t v = 0; v < V; ++v) largest = std::max(largest, double(z[v]));
    for (int64_t v = 0; v < V; ++v) total += std::exp(double(z[v]) - largest);
    return largest + std::log(total);
  };
  const int64_t rows = int64_t(teacher.size()) / V;
  for (int64_t n = 0; n < rows; ++n) {
    const float *t = teacher.data() + n * V, *m = model.data() + n * V;
    const double lt = log_sum(t), lm = log_sum(m);
    for (int64_t v = 0; v < V; ++v) sum += std::exp(t[v] - lt) * ((t[v] - lt) - (m[v] - lm));
  }
  return sum / double(rows);
}

// A teacher of another size, dense, and a model without taught rows: the divergence is that of the
// logits both models have alone, and training makes it smaller.
TEST(KeepRows, ATeacherFromAFileIsLearnedFrom) {
  const Config c = train_config();
  Config big = train_config(false, ToyFamily::llama);
  big.L = 2;
  TemporaryDirectory dir("teacher");
  write_toy_weights(big, dir.path() / "teacher.safetensors");
  const auto source = open_tensor_source(dir.path() / "teacher.safetensors");
  const auto be = make_model_backend(2);
  const auto ids = random_tokens(13, c.V, 9);
  const std::vector<int64_t> tokens(ids.begin(), ids.end());
  const std::vector<uint8_t> flags(ids.size(), kScored);
  const Sample sample{ids, flags};
  PackedBatch b;
  pack(b, {}, std::span(&sample, 1));

  TrainSettings s = keep_settings();
  s.recipe = Recipe::bf16;
  s.master = DType::f32;
  s.keep.weight = 1;
  s.keep.teacher = {big, weight_layout(big, *source, {})};
  const auto file = dir.path() / "model.safetensors";
  write_toy_weights(c, file);
  const auto own = open_tensor_source(file);
  TrainState state(*be, c, *own, s, source.get());
  Trainer trainer(state);
  const double start = trainer.evaluate(b);
  const auto logits = [&](const Config& config, const TensorSource& weights) {
    const Model model = load_model(*be, config, weights, {});
    return evaluate(*be, model, std::span(tokens).first(12), {}, 1, 12, {}).logits;
  };
  const double want = divergence_of(logits(big, *source), logits(c, *own), c.V);
  EXPECT_NEAR(start, want, 1e-4 * want);
  EXPECT_GT(want, 1e-3);
  for (int i = 0; i < 15; ++i) {
    const StepResult r = trainer.step(std::span(&b, 1));
    EXPECT_EQ(r.scored, 0);
    EXPECT_EQ(r.loss, *r.kept_loss);
  }
  EXPECT_LT(trainer.evaluate(b), 0.7 * start);
}

// The plan is what is taken, in every mode; and the run's own start costs only what is trained.
TEST(KeepRows, MemoryIsAsPlanned) {
  const auto be = make_model_backend(1);
  for (const bool tied : {true, false}) {
    const Config c = train_config(tied);
    for (const MemoryMode mode : kMemoryModes) {
      for (const Recompute recompute : kRecomputes) {
        TrainSettings s = keep_settings();
        s.memory = mode, s.recompute = recompute;
        const ParamGroups groups = make_param_groups(c, s);
        const auto plan = plan_arenas(*be, c, groups, s, false);
        TrainToy toy(*be, c, s);
        Trainer trainer(*toy.state);
        const PackedBatch b = mixed_batch({20, 4}, {20, 20}, c.V, 4);
        trainer.step(std::span(&b, 1));
        const auto arenas = toy.state->arenas().all();
        ASSERT_EQ(arenas.size(), plan.size());
        ASSERT_EQ(plan.size(), 7u);
        for (size_t i = 0; i < plan.size(); ++i) {
          EXPECT_EQ(arenas[i]->name(), plan[i].name);
          EXPECT_EQ(arenas[i]->capacity(), plan[i].bytes) << plan[i].name;
          EXPECT_LE(arenas[i]->peak(), plan[i].bytes) << plan[i].name;
        }
        EXPECT_EQ(plan[6].name, "teacher embedding");
        EXPECT_EQ(plan[6].place, mode == MemoryMode::host ? Place::host : Place::device);
      }
    }
  }
}

TEST(KeepRows, WhatIsFrozenIsNotCopied) {
  const Config c = train_config(false);
  const auto be = make_model_backend(1);
  TrainSettings s = keep_settings();
  s.train_last_layers = 1;
  const auto plan = plan_arenas(*be, c, make_param_groups(c, s), s, false);
  ASSERT_EQ(plan.size(), 6u);
  EXPECT_EQ(plan[5].name, "teacher");
  Arena block("one block");
  for (const auto& [out, in] :
       {std::pair{c.qkv_rows(), c.C}, {c.C, c.Hq * c.D}, {2 * c.F, c.C}, {c.C, c.F}}) {
    block.take(DType::u8, {int64_t(be->packed_bytes(out, in))});
  }
  EXPECT_EQ(plan[5].bytes, block.peak());
  s.keep = {};
  EXPECT_EQ(plan_arenas(*be, c, make_param_groups(c, s), s, false).size(), 5u);
}

}  // namespace
}  // namespace nibble::test

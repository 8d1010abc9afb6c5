// SPDX-License-Identifier: MIT
// What an optimizer step tells the backend: the clip, Adam's t, the fp16 loss scale and the random
// streams, seen where the updates arrive.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "backend/forwarding_backend.h"
#include "backend/recording_backend.h"
#include "backends/cpu/cpu_backend.h"
#include "train/run_support.h"

namespace nibble::test {
namespace {

// Notes what comes, and spoils a gradient's sum of squares when asked to.
class Watched final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  std::vector<AdamwStep> updates;
  std::vector<GradWrite> writes;  // of linear layers' gradients
  bool spoil_next_sum = false;

 private:
  void do_adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                     int64_t begin, int64_t count, const AdamwStep& step,
                     const Requantize& requantize) override {
    updates.push_back(step);
    inner_.adamw_step(master, grad, m, v, format, begin, count, step, requantize);
  }
  void do_linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) override {
    writes.push_back(write);
    inner_.linear_wgrad(dw, dy, x, write);
  }
  void do_sum_squares(Tensor out, Tensor x) override {
    inner_.sum_squares(out, x);
    const double bad = std::numeric_limits<double>::infinity();
    if (std::exchange(spoil_next_sum, false)) inner_.upload(out, &bad);
  }
};

class StepRules : public testing::Test {
 protected:
  static StepResult step(Trainer& trainer, int64_t number) {
    const PackedBatch b = batch_of_step(trainer.state().config(), number);
    return trainer.step(std::span(&b, 1));
  }
  // The one factor of all updates since the last call.
  float grad_scale() {
    std::set<float> factors;
    for (const AdamwStep& s : be_.updates) factors.insert(s.grad_scale);
    EXPECT_EQ(factors.size(), 1u);
    be_.updates.clear();
    return factors.empty() ? 0 : *factors.begin();
  }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  Watched be_{*cpu_};
  Config config_ = train_config();
};

TEST_F(StepRules, ResidentGradientsAreClippedByTheirOwnNorm) {
  TrainSettings s = default_settings();
  s.optimizer.grad_clip = 0.25;
  TrainToy toy(be_, config_, s);
  Trainer trainer(*toy.state);
  for (int64_t i = 0; i < 2; ++i) {
    const StepResult r = step(trainer, i);
    ASSERT_GT(r.grad_norm, 0.5);  // far above the limit
    EXPECT_FLOAT_EQ(grad_scale(), float(0.25 / (r.grad_norm + 1e-6)));
  }
}

TEST_F(StepRules, ReleasedGradientsAreClippedByTheNormBefore) {
  for (const MemoryMode mode : {MemoryMode::release, MemoryMode::remake, MemoryMode::host}) {
    SCOPED_TRACE(memory_mode_name(mode));
    TrainSettings s = default_settings();
    s.memory = mode;
    s.optimizer.grad_clip = 0.25;
    TrainToy toy(be_, config_, s);
    Trainer trainer(*toy.state);
    double before = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const StepResult r = step(trainer, i);
      ASSERT_GT(r.grad_norm, 0.5);
      const double clip = i == 0 ? 1 : 0.25 / (before + 1e-6);  // the first has none before it
      EXPECT_DOUBLE_EQ(r.clip, clip);
      EXPECT_FLOAT_EQ(grad_scale(), float(clip));
      before = r.grad_norm;
    }
  }
}

// Norms below the limit, and a limit of zero, leave gradients as they are.
TEST_F(StepRules, WhatNeedsNoClipIsNotScaled) {
  for (const MemoryMode mode : {MemoryMode::resident, MemoryMode::release}) {
    for (const double limit : {0.0, 1e6}) {
      TrainSettings s = default_settings();
      s.memory = mode;
      s.optimizer.grad_clip = limit;
      TrainToy toy(be_, config_, s);
      Trainer trainer(*toy.state);
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(step(trainer, i).clip, 1);
        EXPECT_EQ(grad_scale(), 1);
      }
    }
  }
}

// A norm without the tensors that were left out would be too small to clip with.
TEST_F(StepRules, ANormOfPartOfTheGradientsDoesNotClip) {
  TrainSettings s = default_settings();
  s.memory = MemoryMode::release;
  s.optimizer.grad_clip = 0.25;
  TrainToy toy(be_, config_, s);
  Trainer trainer(*toy.state);
  const double whole = step(trainer, 0).grad_norm;
  be_.spoil_next_sum = true;
  const StepResult part = step(trainer, 1);
  EXPECT_EQ(part.bad_tensors, 1);
  EXPECT_FALSE(part.skipped);
  EXPECT_NE(part.problem, "");
  EXPECT_DOUBLE_EQ(step(trainer, 2).clip, 0.25 / (whole + 1e-6));
}

// A run in which a step was skipped goes on as if that step had never been: the same masters and
// moments, bit for bit. What Adam divides by is 1 - beta^t with t the number of updates.
TEST_F(StepRules, ASkippedStepDoesNotCountForAdam) {
  enum class Skip { none, by_loss, by_gradient };
  const auto bits_with = [&](MemoryMode mode, Skip skip) {
    TrainSettings s = default_settings();
    s.memory = mode;
    s.grad = DType::f32;  // sums of bf16 are rounded with bits of their own each time
    TrainToy toy(be_, config_, s);
    Trainer trainer(*toy.state);
    EXPECT_FALSE(step(trainer, 0).skipped);
    if (skip == Skip::by_loss) {
      const Tensor norm = toy.state->tensors().master.final_norm;
      const std::vector<float> good = download_floats(be_, norm),
                               bad(good.size(), std::numeric_limits<float>::quiet_NaN());
      be_.upload(norm, bad.data());
      EXPECT_TRUE(step(trainer, 7).skipped);
      be_.upload(norm, good.data());
    } else if (skip == Skip::by_gradient) {
      be_.spoil_next_sum = true;
      EXPECT_TRUE(step(trainer, 7).skipped);
    }
    be_.updates.clear();
    EXPECT_FALSE(step(trainer, 1).skipped);
    for (const AdamwStep& u : be_.updates) {
      EXPECT_EQ(u.bias1, float(1 - std::pow(s.optimizer.beta1, 2)));
      EXPECT_EQ(u.bias2, float(1 - std::pow(s.optimizer.beta2, 2)));
    }
    EXPECT_EQ(trainer.progress.step, skip == Skip::none ? 2 : 3);
    EXPECT_EQ(trainer.progress.skipped, skip == Skip::none ? 0 : 1);
    return all_bits(*toy.state);
  };
  for (const MemoryMode mode : {MemoryMode::resident, MemoryMode::release}) {
    const auto want = bits_with(mode, Skip::none);
    EXPECT_TRUE(bits_with(mode, Skip::by_loss) == want) << memory_mode_name(mode);
  }
  const MemoryMode resident = MemoryMode::resident;  // others leave out the bad tensor only
  EXPECT_TRUE(bits_with(resident, Skip::by_gradient) == bits_with(resident, Skip::none));
}

TEST_F(StepRules, OneScoredTokenIsEnoughAndNoneIsRefused) {
  TrainToy toy(be_, config_, default_settings());
  Trainer trainer(*toy.state);
  const std::vector<PackedBatch> one = {packed_batch({{3, 4, 5}}, {{-1, -1, 6}})},
                                 none = {packed_batch({{3, 4, 5}}, {{-1, -1, -1}})};
  const StepResult r = trainer.step(one);
  EXPECT_EQ(r.scored, 1);
  EXPECT_FALSE(r.skipped);
  EXPECT_THROW(trainer.step(none), InternalError);
}

// 2000 good steps double it, up to 2^24; a bad one halves it, down to 1, and begins to count anew.
// What reaches the optimizer is divided by the scale of its own step.
TEST_F(StepRules, TheLossScaleOfFp16GrowsAndFalls) {
  TrainSettings s = default_settings();
  s.compute = DType::f16;
  s.recipe = Recipe::bf16;
  s.optimizer.grad_clip = 0;
  TrainToy toy(be_, config_, s);
  Trainer trainer(*toy.state);
  TrainerProgress& p = trainer.progress;
  EXPECT_EQ(p.loss_scale, 65536);
  p.loss_scale = 1024;
  p.good_steps = 1998;
  EXPECT_EQ(step(trainer, 0).loss_scale, 1024);
  EXPECT_EQ(p.loss_scale, 1024);
  EXPECT_EQ(step(trainer, 1).loss_scale, 1024);
  EXPECT_EQ(p.loss_scale, 2048);
  EXPECT_EQ(p.good_steps, 0);
  be_.updates.clear();
  EXPECT_EQ(step(trainer, 2).loss_scale, 2048);
  EXPECT_EQ(grad_scale(), 1.0f / 2048);
  EXPECT_EQ(p.loss_scale, 2048);
  EXPECT_EQ(p.good_steps, 1);

  be_.spoil_next_sum = true;
  EXPECT_TRUE(step(trainer, 3).skipped);
  EXPECT_EQ(p.loss_scale, 1024);
  EXPECT_EQ(p.good_steps, 0);
  p.loss_scale = 1;
  be_.spoil_next_sum = true;
  EXPECT_TRUE(step(trainer, 4).skipped);
  EXPECT_EQ(p.loss_scale, 1);
  // A scale of 2^24 would overflow this model's gradients: only the rule is looked at.
  p.loss_scale = 4096;
  for (const double scale : {double(1 << 23), double(1 << 24)}) {
    TrainerProgress before = p;
    p.good_steps = 1999;
    trainer.phase = [&](const char* phase) {
      if (std::string_view(phase) == "backward_done") p.loss_scale = scale;
    };
    EXPECT_FALSE(step(trainer, 5).skipped);
    EXPECT_EQ(p.loss_scale, 1 << 24);
    p = before;
  }
}

// Where gradients are released, a bad tensor is left out and the step goes on: fp16 backs off all
// the same.
TEST_F(StepRules, ATensorLeftOutLowersTheLossScale) {
  TrainSettings s = default_settings();
  s.compute = DType::f16;
  s.recipe = Recipe::bf16;
  s.memory = MemoryMode::release;
  TrainToy toy(be_, config_, s);
  Trainer trainer(*toy.state);
  trainer.progress.loss_scale = 1024;
  be_.spoil_next_sum = true;
  EXPECT_EQ(step(trainer, 0).bad_tensors, 1);
  EXPECT_EQ(trainer.progress.loss_scale, 512);
}

// Two roundings with the same random bits are wrong in the same direction: each gradient of each
// layer and micro-batch has a stream of its own, each parameter's update of each step another.
TEST_F(StepRules, EveryRoundingHasAStreamOfItsOwn) {
  for (const bool tied : {true, false}) {
    const Config c = train_config(tied);
    TrainToy toy(be_, c, default_settings());
    Trainer trainer(*toy.state);
    be_.updates.clear(), be_.writes.clear();
    constexpr int64_t kSteps = 2, kMicro = 3;
    for (int64_t i = 0; i < kSteps; ++i) {
      std::vector<PackedBatch> micro;
      for (int64_t m = 0; m < kMicro; ++m) micro.push_back(batch_of_step(c, i, m));
      ASSERT_FALSE(trainer.step(micro).skipped);
    }
    std::set<uint64_t> streams;
    for (const AdamwStep& u : be_.updates) {
      EXPECT_TRUE(streams.insert(u.stream).second) << "an update's, again";
      EXPECT_EQ(u.seed, default_settings().seed);
    }
    EXPECT_EQ(int64_t(streams.size()), kSteps * int64_t(toy.state->groups().table.size() - tied));
    // The head's gradient comes in two pieces of the vocabulary: one stream, another offset.
    std::set<std::pair<uint64_t, int64_t>> places;
    for (const GradWrite& w : be_.writes) {
      EXPECT_TRUE(places.insert({w.stream, w.offset}).second) << "a gradient's, again";
      EXPECT_FALSE(streams.contains(w.stream));
    }
    EXPECT_EQ(int64_t(places.size()), kSteps * kMicro * (4 * c.L + 2));
  }
}

}  // namespace
}  // namespace nibble::test

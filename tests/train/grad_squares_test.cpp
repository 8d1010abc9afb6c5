// SPDX-License-Identifier: MIT
// The norm of gradients whose squares come with some of them (linear_wgrad_squares), as no backend
// of the CPU has it: the same norm, each gradient counted once, and only where gradients stay as
// they are written.
#include <gtest/gtest.h>

#include <limits>

#include "backend/download.h"
#include "backend/forwarding_backend.h"
#include "backends/cpu/cpu_backend.h"
#include "train/run_support.h"

namespace nibble::test {
namespace {

// Every third gradient comes without, as shapes do that a backend's kernel does not take.
class SomeSquares final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  int64_t taken = 0;
  double beside = 0;  // in a part of each

 private:
  bool do_linear_wgrad_squares(Tensor dw, Tensor parts, Tensor dy, Tensor x,
                               const GradWrite& write) override {
    if (++asked_ % 3 == 0) return false;
    ++taken;
    inner_.linear_wgrad(dw, dy, x, write);
    std::vector<double> sums(size_t(parts.numel()));
    size_t i = 0;
    for (const float v : download_floats(inner_, dw)) sums[i++ % sums.size()] += double(v) * v;
    sums.back() += beside;
    inner_.upload(parts, sums.data());
    return true;
  }
  int64_t asked_ = 0;
};

struct Outcome {
  std::vector<double> norms;
  std::vector<std::byte> bits;
};
Outcome run_steps(Backend& be, const Config& c, const TrainSettings& s, int64_t micro_batches = 1) {
  TrainToy toy(be, c, s);
  Trainer trainer(*toy.state);
  Outcome r;
  for (int64_t i = 0; i < 3; ++i) {
    std::vector<PackedBatch> micro;
    for (int64_t m = 0; m < micro_batches; ++m) micro.push_back(batch_of_step(c, i, m));
    r.norms.push_back(trainer.step(micro).grad_norm);
  }
  r.bits = all_bits(*toy.state);
  return r;
}

TEST(GradSquares, AreKnownBySlotLayerAndRows) {
  const auto param = [](ParamSlot slot, int64_t layer, int64_t row_offset) {
    return ParamSpec{"", slot, layer, {8, 16}, row_offset};
  };
  std::vector<double> memory(3 * kSquareParts);
  GradSquares squares;
  EXPECT_FALSE(squares.next());
  squares.begin(make_tensor(memory.data(), DType::f64, {3, kSquareParts}));
  EXPECT_FALSE(squares.made());
  EXPECT_FALSE(squares.holds(param(ParamSlot::qkv, 0, 0)));
  // q and k of layer 1, which are stacked, and v of layer 2 alone.
  EXPECT_EQ(squares.next().as<double>(), memory.data());
  squares.add(ParamSlot::qkv, 1, 0, 16);
  EXPECT_EQ(squares.next().as<double>(), memory.data() + kSquareParts);
  squares.add(ParamSlot::qkv, 2, 16, 8);
  EXPECT_EQ(squares.made().numel(), 2 * kSquareParts);
  for (const int64_t layer : {0, 1, 2, 3}) {
    for (const int64_t row : {0, 8, 16}) {
      const bool given = (layer == 1 && row < 16) || (layer == 2 && row == 16);
      EXPECT_EQ(squares.holds(param(ParamSlot::qkv, layer, row)), given) << layer << " " << row;
      EXPECT_FALSE(squares.holds(param(ParamSlot::gate_up, layer, row)));
      EXPECT_FALSE(squares.holds(param(ParamSlot::attn_norm, layer, row)));
    }
  }
  squares.add(ParamSlot::down, 2, 0, 8);
  EXPECT_FALSE(squares.next()) << "there is no row left";
  EXPECT_THROW(squares.add(ParamSlot::down, 2, 0, 8), InternalError);
  squares.begin(make_tensor(memory.data(), DType::f64, {3, kSquareParts}));
  EXPECT_FALSE(squares.holds(param(ParamSlot::qkv, 1, 0)));
}

TEST(GradSquares, TheNormIsThatOfAllGradients) {
  const auto cpu = make_cpu_backend(1);
  std::vector<TrainSettings> all(4, default_settings());
  all[1].lr_scale = {{"k_proj", 0}};  // two runs of rows in a stacked weight
  all[2].train_last_layers = 1;
  all[3].lr_scale = {{"norm", 0}, {"embed_tokens", 0}};
  for (const bool tied : {true, false}) {
    for (TrainSettings& s : all) {
      s.optimizer.grad_clip = 0;  // the order of sums may differ, the bits of weights must not
      const Config c = train_config(tied);
      SomeSquares some(*cpu);
      const Outcome plain = run_steps(*cpu, c, s), with = run_steps(some, c, s);
      EXPECT_GT(some.taken, 0);
      EXPECT_EQ(with.bits, plain.bits);
      for (size_t i = 0; i < plain.norms.size(); ++i) {
        EXPECT_NEAR(with.norms[i] / plain.norms[i], 1, 1e-9);
      }
    }
  }
}

TEST(GradSquares, NotOfGradientsThatChangeOrGo) {
  const auto cpu = make_cpu_backend(1);
  const Config c = train_config();
  TrainSettings s = default_settings();
  SomeSquares some(*cpu);
  const Outcome plain = run_steps(*cpu, c, s, 2), with = run_steps(some, c, s, 2);
  EXPECT_EQ(with.norms, plain.norms);
  EXPECT_EQ(with.bits, plain.bits);
  s.memory = MemoryMode::release;
  EXPECT_EQ(run_steps(some, c, s).norms, run_steps(*cpu, c, s).norms);
  {
    TrainToy toy(some, c, s);
    const PackedBatch batch = batch_of_step(c, 0);
    Trainer(*toy.state).accumulate_gradients(std::span(&batch, 1));
  }
  s.memory = MemoryMode::resident;
  for (const char* name : {"q", "k", "v", "o", "gate", "up", "down"}) {
    s.lr_scale.push_back({std::string(name) + "_proj", 0});
  }
  EXPECT_EQ(run_steps(some, c, s).norms, run_steps(*cpu, c, s).norms);
  EXPECT_EQ(some.taken, 0);
}

TEST(GradSquares, SquaresThatAreNotFiniteSkipTheStep) {
  const auto cpu = make_cpu_backend(1);
  const Config c = train_config();
  for (const double beside :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    SomeSquares some(*cpu);
    TrainToy toy(some, c, default_settings());
    Trainer trainer(*toy.state);
    const std::vector<std::byte> before = all_bits(*toy.state);
    const std::vector<PackedBatch> batch = {batch_of_step(c, 0)};
    some.beside = beside;
    const StepResult r = trainer.step(batch);
    EXPECT_TRUE(r.skipped);
    EXPECT_NE(r.problem, "");
    EXPECT_EQ(all_bits(*toy.state), before);
    some.beside = 0;
    EXPECT_FALSE(trainer.step(batch).skipped);
  }
}

}  // namespace
}  // namespace nibble::test

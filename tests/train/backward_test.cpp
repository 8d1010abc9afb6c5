// SPDX-License-Identifier: MIT
// The backward pass against calculus: complex-step derivatives of the production wiring, and the
// equivalences that must hold bit for bit.
#include <gtest/gtest.h>

#include "model/decoder.h"
#include "support/golden.h"
#include "support/ref_backend.h"
#include "support/tested_backend.h"
#include "support/train_toy.h"
#include "train/keep_support.h"

namespace nibble::test {
namespace {

using Complex = std::complex<double>;

// Small enough to differentiate by every parameter, with everything in it: grouped queries, three
// blocks, a vocabulary of more than one piece, and rows that are not scored.
Config tiny_config(bool tied, ToyFamily family) {
  Config c = of_family(toy_config(), family);
  c.C = 16;
  c.Hq = 2;
  c.Hkv = 1;
  c.D = 8;
  c.F = 16;
  c.V = 80;
  c.tied = tied;
  return c;
}

PackedBatch tiny_batch() {
  return packed_batch({{3, 7, 79, 3}, {11, 3, 64}}, {{-1, 79, 3, 5}, {3, 64, -1}});
}

enum class Rows { taught, mixed, kept };  // of a batch

PackedBatch tiny_batch(Rows rows) {
  if (rows == Rows::taught) return tiny_batch();
  return rows == Rows::mixed ? mixed_batch({4}, {5}, 80, 1) : mixed_batch({}, {5}, 80, 1);
}

struct Case {
  const char* name;
  bool tied;
  Recipe recipe, head;
  Recompute recompute;
  ToyFamily family = ToyFamily::qwen3;
  Rows rows = Rows::taught;
};

class ComplexStepTraining : public testing::TestWithParam<Case> {};

// The loss of the production forward as a complex number: the mean over taught rows and, weighted,
// that over kept ones.
Complex complex_loss(TrainState& state, const PackedBatch& b) {
  Backend& be = state.backend();
  const TrainSettings& s = state.settings();
  Arena& arena = state.arenas().step;
  arena.release(0);
  StepTensors t = make_step_tensors(
      arena, state.config(), s,
      {b.tokens(), b.outputs(), int64_t(b.sequences.size()), b.kept_tokens, b.kept_sequences});
  be.upload(t.batch.ids, b.ids.data());
  be.upload(t.batch.positions, b.positions.data());
  be.upload(t.batch.slots, b.slots.data());
  be.upload(t.batch.sequences, b.sequences.data());
  be.upload(t.batch.out_rows, b.out_rows.data());
  be.upload(t.loss.targets, b.targets.data());
  KeptRows kept;
  if (b.kept_tokens > 0) {
    EXPECT_EQ(b.kept_sequences, 1);
    const int32_t n = int32_t(b.kept_tokens);
    const Sequence sequence{0, n, 0, n};
    be.upload(t.teacher.batch.sequences, &sequence);
    forward_hidden(be, state.teacher_config(), state.tensors().teacher, t.teacher.batch,
                   t.teacher.acts, kv_of_acts(t.teacher.acts, state.teacher_config()),
                   Activations::none);
    kept.head = [&](int64_t v, int64_t rows) { return state.teacher_head_rows(v, rows); };
    kept.n_out = t.teacher.acts.n_out;
  }
  PassHooks hooks;
  hooks.weights_needed = [&](int64_t layer) { state.need_weights(layer); };
  forward_hidden(be, state.config(), state.tensors().forward, t.batch, t.acts,
                 kv_of_acts(t.acts, state.config()), Activations::none, hooks);
  LossInputs in{.config = state.config(),
                .head = [&](int64_t v, int64_t n) { return state.head_rows(v, n); },
                .embed = state.tensors().forward.embed,
                .n_out = t.acts.n_out,
                .scale = 1,
                .gradient = WantGradient::no,
                .d_head = {},
                .head_write = {},
                .kept = kept};
  vocabulary_loss(be, in, t.loss);
  Complex taught = 0, divergence = 0;
  for (int64_t i = 0; i < b.outputs(); ++i) {
    (i < b.taught() ? taught : divergence) += t.loss.loss.as<Complex>()[i];
  }
  if (b.taught() > 0) taught /= double(b.taught());
  if (b.kept_tokens > 0) divergence *= s.keep.weight / double(b.kept_tokens);
  return taught + divergence;
}

// From the start, which is the teacher: there kept rows have no gradient at all.
void move_away(TrainState& state) {
  const ParamGroups& g = state.groups();
  for (size_t i = 0; i < g.table.size(); ++i) {
    if (!g.trained[i]) continue;
    Complex* w = state.master_of(g.table[i]).as<Complex>();
    for (int64_t e = 0; e < g.table[i].numel(); ++e) w[e] += 0.05 * std::sin(double(7 * e + 3));
  }
  for (const ParamSpec& p : g.table) state.requantize(p);
}

TEST_P(ComplexStepTraining, EveryParameter) {
  const Case& k = GetParam();
  RefBackend<Complex> be;
  TrainSettings s = wide_settings(DType::c128);
  s.recipe = k.recipe;
  s.head_recipe = k.head;
  s.recompute = k.recompute;
  s.logits_bytes = 1;  // the smallest pieces: 64 of the 80 rows
  set_capacity(s, 16, 4);
  if (k.rows != Rows::taught) s.keep.max_tokens = 8, s.keep.max_sequences = 2, s.keep.weight = 3;
  const Config c = tiny_config(k.tied, k.family);
  TrainToy toy(be, c, s);
  TrainState& state = *toy.state;
  const PackedBatch b = tiny_batch(k.rows);
  if (k.rows != Rows::taught) move_away(state);
  Trainer trainer(state);
  trainer.accumulate_gradients(std::span(&b, 1));
  const Grads& grads = state.tensors().grads;

  constexpr double kStep = 1e-30;
  double worst = 0;
  int64_t checked = 0;
  for (size_t i = 0; i < state.groups().table.size(); ++i) {
    const ParamSpec& p = state.groups().table[i];
    if (!state.groups().trained[i]) continue;
    const Tensor grad = grad_of(grads, p), master = state.master_of(p);
    ASSERT_TRUE(bool(grad)) << p.name;
    const bool tied_embed = p.slot == ParamSlot::embed && k.tied;
    const ParamSpec& packed = tied_embed ? state.groups().table.back() : p;
    double difference = 0, norm = 0;
    for (int64_t e = 0; e < p.numel(); ++e) {
      Complex& w = master.as<Complex>()[e];
      const Complex before = w;
      w += Complex(0, kStep);
      state.requantize(packed);
      const double want = complex_loss(state, b).imag() / kStep;
      w = before;
      const double got = grad.as<Complex>()[e].real();
      difference = std::max(difference, std::abs(got - want));
      norm = std::max(norm, std::abs(want));
      ++checked;
    }
    state.requantize(packed);
    EXPECT_GT(norm, 0) << p.name;
    EXPECT_LT(difference / norm, 1e-12) << p.name;
    worst = std::max(worst, difference / norm);
  }
  RecordProperty("worst", std::to_string(worst));
  std::printf("%s: %ld parameters, worst relative error %.1e\n", k.name, long(checked), worst);
}

INSTANTIATE_TEST_SUITE_P(
    All, ComplexStepTraining,
    testing::Values(
        Case{"tied", true, Recipe::bf16, Recipe::bf16, Recompute::none},
        Case{"untied", false, Recipe::bf16, Recipe::bf16, Recompute::block},
        Case{"tied_nvfp4", true, Recipe::nvfp4, Recipe::nvfp4, Recompute::mlp},
        Case{"untied_nvfp4", false, Recipe::nvfp4, Recipe::bf16, Recompute::none},
        Case{"qwen2", true, Recipe::bf16, Recipe::bf16, Recompute::block, ToyFamily::qwen2},
        Case{"qwen2_nvfp4", false, Recipe::nvfp4, Recipe::bf16, Recompute::none, ToyFamily::qwen2},
        Case{"llama", false, Recipe::bf16, Recipe::bf16, Recompute::mlp, ToyFamily::llama},
        Case{"kept", true, Recipe::bf16, Recipe::bf16, Recompute::none, ToyFamily::qwen3,
             Rows::kept},
        Case{"kept_nvfp4", false, Recipe::nvfp4, Recipe::nvfp4, Recompute::block, ToyFamily::qwen2,
             Rows::kept},
        Case{"taught_and_kept", true, Recipe::nvfp4, Recipe::nvfp4, Recompute::mlp,
             ToyFamily::qwen3, Rows::mixed}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// Gradients and five AdamW steps against PyTorch in fp64 (tests/golden), on every backend, at the
// bounds of docs/numerics.md, "How close is close".
#include <gtest/gtest.h>

#include "backend/download.h"
#include "support/backends.h"
#include "support/golden.h"
#include "support/train_toy.h"

namespace nibble::test {
namespace {

struct GoldenRun {
  const char* folder;
  Recipe recipe, head;
  Recompute recompute = Recompute::none;
  // How far the stored gradients are from the exact ones, where that is more than the bounds below:
  // transformers forms norms, softmax and angles in fp32, and keys with biases of 20 and more make
  // scores so large that those roundings show. tools/make_golden.py check --exact measures it, with
  // complex steps of its own forward in fp64; nibble's reference is as far away to three digits.
  double noise = 0;
};

struct Bounds {
  double loss, gradient, after_five;
};

class GoldenTraining : public testing::TestWithParam<std::tuple<BackendCase, GoldenRun>> {
 protected:
  const BackendCase& backend_case() const { return std::get<0>(GetParam()); }
  const GoldenRun& run() const { return std::get<1>(GetParam()); }
  bool reference() const { return backend_case().compute == DType::f64; }
  // fp32 adds roundings of its own, as large as the golden's. Five steps move by 20 times the error
  // of a gradient, as the first bounds do: AdamW divides small elements by their own size.
  Bounds bounds() const {
    const double n = run().noise;
    if (reference()) return {1e-6, 1e-6 + n, 2e-5 + 20 * n};
    return testing_cuda() ? Bounds{2e-5, 1e-4 + 2 * n, 5e-4 + 40 * n}
                          : Bounds{5e-6, 2e-5 + 2 * n, 1e-4 + 40 * n};
  }

  void SetUp() override {
    backend_ = backend_case().make();
    const auto dir = golden_dir() / run().folder;
    expected_ = open_tensor_source(dir / "expected.safetensors");
    source_ = open_tensor_source(dir / "model.safetensors");
    batch_ = golden_batch();
    const bool bf16 = backend_case().compute == DType::bf16;
    TrainSettings s = wide_settings(bf16 ? DType::f32 : backend_case().compute);
    if (bf16) s.compute = s.master = DType::bf16;
    s.recipe = run().recipe;
    s.head_recipe = run().head;
    s.recompute = run().recompute;
    s.logits_bytes = 1 << 16;  // several pieces
    set_capacity(s, batch_.tokens(), int64_t(batch_.sequences.size()));
    s.schedule.lr = 1e-3;
    s.optimizer.weight_decay = 0.01;
    s.optimizer.decay_all = true;
    state_ = std::make_unique<TrainState>(*backend_, load_config(dir / "config.json"), *source_, s);
  }

  // Position t predicts label t + 1 of its row; negative labels are not scored.
  PackedBatch golden_batch() const {
    const auto ids = read_all<int64_t>(*expected_, "input_ids");
    const auto labels = read_all<int64_t>(*expected_, "labels");
    const auto& shape = expected_->at("input_ids").shape;
    std::vector<std::vector<int32_t>> rows, targets;
    for (int64_t b = 0; b < shape[0]; ++b) {
      const auto at = b * shape[1];
      rows.emplace_back(ids.begin() + at, ids.begin() + at + shape[1]);
      targets.emplace_back(labels.begin() + at + 1, labels.begin() + at + shape[1]);
      targets.back().push_back(-1);
    }
    return packed_batch(rows, targets);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TensorSource> expected_, source_;
  std::unique_ptr<TrainState> state_;
  PackedBatch batch_;
};

TEST_P(GoldenTraining, Gradients) {
  Trainer trainer(*state_);
  const double loss = *trainer.accumulate_gradients(std::span(&batch_, 1));
  const double want = double(read_all<float>(*expected_, "loss")[0]);
  EXPECT_LT(std::abs(loss - want) / want, bounds().loss);
  double worst = 0;
  int64_t compared = 0;
  for (size_t i = 0; i < state_->groups().table.size(); ++i) {
    const ParamSpec& p = state_->groups().table[i];
    if (!state_->groups().trained[i]) continue;
    const auto got = download_floats(*backend_, grad_of(state_->tensors().grads, p));
    const double error = relative_l2(got, read_all<float>(*expected_, "grad." + p.name));
    EXPECT_LT(error, bounds().gradient) << p.name;
    worst = std::max(worst, error);
    ++compared;
  }
  EXPECT_GE(compared, 20);
  std::printf("worst gradient error %.1e of %ld tensors\n", worst, long(compared));
}

// Activations and dense weights in bf16: products of bf16 pairs, where the processor has them.
class GoldenBf16 : public GoldenTraining {};

TEST_P(GoldenBf16, GradientsPointTheSameWay) {
  Trainer trainer(*state_);
  const double loss = *trainer.accumulate_gradients(std::span(&batch_, 1));
  const double want = double(read_all<float>(*expected_, "loss")[0]);
  EXPECT_LT(std::abs(loss - want) / want, 1e-2);
  double worst = 1;
  for (size_t i = 0; i < state_->groups().table.size(); ++i) {
    const ParamSpec& p = state_->groups().table[i];
    if (!state_->groups().trained[i]) continue;
    const auto got = download_floats(*backend_, grad_of(state_->tensors().grads, p));
    const double c = cosine(got, read_all<float>(*expected_, "grad." + p.name));
    // Of large scores a rounding to bf16 shows as much more as one to fp32 does.
    EXPECT_GE(c, 0.999 - 1000 * run().noise) << p.name;
    worst = std::min(worst, c);
  }
  std::printf("least cosine 1 - %.1e\n", 1 - worst);
}

class GoldenAdamw : public GoldenTraining {};

TEST_P(GoldenAdamw, FiveSteps) {
  Trainer trainer(*state_);
  const auto losses = read_all<double>(*expected_, "adamw_losses");
  for (const double want : losses) {
    const StepResult r = trainer.step(std::span(&batch_, 1));
    EXPECT_LT(std::abs(r.loss - want) / want, bounds().after_five) << r.step;
    EXPECT_FALSE(r.skipped);
  }
  double worst = 0;
  for (size_t i = 0; i < state_->groups().table.size(); ++i) {
    const ParamSpec& p = state_->groups().table[i];
    if (!state_->groups().trained[i]) continue;
    const auto got = download_floats(*backend_, state_->master_of(p));
    const double error = relative_l2(got, read_all<float>(*expected_, "adamw5." + p.name));
    EXPECT_LT(error, bounds().after_five) << p.name;
    worst = std::max(worst, error);
  }
  std::printf("worst error after five steps %.1e\n", worst);
}

std::vector<GoldenRun> golden_runs() {
  return {{"qwen3_tied", Recipe::bf16, Recipe::bf16},
          {"qwen3_untied", Recipe::bf16, Recipe::bf16, Recompute::block},
          {"qwen2_tied", Recipe::bf16, Recipe::bf16, Recompute::block, 5.3e-6},
          {"qwen2_untied", Recipe::bf16, Recipe::bf16, Recompute::none, 4.5e-6},
          {"llama_tied", Recipe::bf16, Recipe::bf16, Recompute::mlp},
          {"llama3_rope", Recipe::bf16, Recipe::bf16},
          {"yarn_rope", Recipe::bf16, Recipe::bf16, Recompute::block, 1.81e-5},
          {"qwen3_tied_nvfp4", Recipe::nvfp4, Recipe::bf16, Recompute::mlp}};
}
std::vector<GoldenRun> adamw_runs() {
  auto runs = golden_runs();
  runs.pop_back();  // there is no such golden with NVFP4
  return runs;
}

std::string run_name(const testing::TestParamInfo<GoldenTraining::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param).folder;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTraining,
                         testing::Combine(testing::ValuesIn(backend_cases()),
                                          testing::ValuesIn(golden_runs())),
                         run_name);
INSTANTIATE_TEST_SUITE_P(All, GoldenBf16,
                         testing::Combine(testing::Values(bf16_case()),
                                          testing::ValuesIn(golden_runs())),
                         run_name);
INSTANTIATE_TEST_SUITE_P(All, GoldenAdamw,
                         testing::Combine(testing::ValuesIn(backend_cases()),
                                          testing::ValuesIn(adamw_runs())),
                         run_name);

}  // namespace
}  // namespace nibble::test

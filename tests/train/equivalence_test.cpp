// SPDX-License-Identifier: MIT
// Runs that must give the same bits: recompute, chunks, threads, reruns, released gradients,
// resume. And those that must agree closely: packing, accumulation, bf16.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/download.h"
#include "support/golden.h"
#include "support/tested_backend.h"
#include "train/checkpoint.h"
#include "train/run_support.h"

namespace nibble::test {
namespace {

struct RunResult {
  std::vector<std::byte> bits;
  std::vector<double> losses;
};

RunResult run_steps(const Config& c, const TrainSettings& s, int64_t steps, int threads = 2,
                    int64_t accumulate = 1) {
  const auto be = make_model_backend(threads);
  TrainToy toy(*be, c, s);
  Trainer trainer(*toy.state);
  RunResult r;
  for (int64_t i = 0; i < steps; ++i) {
    std::vector<PackedBatch> micro;
    for (int64_t m = 0; m < accumulate; ++m) micro.push_back(batch_of_step(c, i, m));
    r.losses.push_back(trainer.step(micro).loss);
  }
  r.bits = all_bits(*toy.state);
  return r;
}

void expect_same(const RunResult& a, const RunResult& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.bits.size(), b.bits.size());
  EXPECT_EQ(std::memcmp(a.bits.data(), b.bits.data(), a.bits.size()), 0);
}

struct Variant {
  const char* name;
  bool tied;
  DType compute;
  Recipe recipe;
  ToyFamily family = ToyFamily::qwen3;
};

class Exact : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    config_ = train_config(GetParam().tied, GetParam().family);
    settings_ = default_settings();
    settings_.compute = GetParam().compute;
    settings_.recipe = GetParam().recipe;
    plain_ = run_steps(config_, settings_, 4);
  }
  Config config_;
  TrainSettings settings_;
  RunResult plain_;
};

TEST_P(Exact, Rerun) { expect_same(plain_, run_steps(config_, settings_, 4)); }

TEST_P(Exact, TheSeedMatters) {
  settings_.seed = 8;
  EXPECT_NE(plain_.bits, run_steps(config_, settings_, 4).bits);
}

TEST_P(Exact, Recompute) {
  for (const Recompute r : {Recompute::mlp, Recompute::block}) {
    settings_.recompute = r;
    expect_same(plain_, run_steps(config_, settings_, 4));
  }
}

TEST_P(Exact, StepChunkRows) {
  for (const int64_t rows : {1, 3, 32}) {
    settings_.optimizer.chunk_rows = rows;
    expect_same(plain_, run_steps(config_, settings_, 4));
  }
}

TEST_P(Exact, Threads) {
  expect_same(plain_, run_steps(config_, settings_, 4, 1));
  expect_same(plain_, run_steps(config_, settings_, 4, 3));
}

// Without a clip, which released gradients take from the step before.
TEST_P(Exact, ReleasedGradients) {
  settings_.optimizer.grad_clip = 0;
  const RunResult resident = run_steps(config_, settings_, 4);
  settings_.memory = MemoryMode::release;
  expect_same(resident, run_steps(config_, settings_, 4));
  settings_.recompute = Recompute::block;
  expect_same(resident, run_steps(config_, settings_, 4));
  if (settings_.recipe != Recipe::nvfp4) return;
  // Updates beside the backward, of masters and moments that lie elsewhere.
  settings_.memory = MemoryMode::host;
  for (const Recompute r : kRecomputes) {
    settings_.recompute = r;
    expect_same(resident, run_steps(config_, settings_, 4));
  }
  for (const MomentFormat f : {MomentFormat::f32, MomentFormat::bf16, MomentFormat::nvfp4}) {
    settings_.optimizer.moments = f;
    settings_.memory = MemoryMode::release;
    const RunResult here = run_steps(config_, settings_, 4);
    settings_.memory = MemoryMode::host;
    expect_same(here, run_steps(config_, settings_, 4));
  }
}

// NVFP4 made on demand: the file of the toy is dense, so both make it from the master.
TEST_P(Exact, RemadeWeights) {
  settings_.memory = MemoryMode::release;
  const auto be = make_model_backend(2);
  const auto masters = [&](MemoryMode mode) {
    settings_.memory = mode;
    TrainToy toy(*be, config_, settings_);
    Trainer trainer(*toy.state);
    std::vector<float> all;
    for (int64_t i = 0; i < 4; ++i) {
      const PackedBatch b = batch_of_step(config_, i);
      all.push_back(float(trainer.step(std::span(&b, 1)).loss));
    }
    for (const ParamSpec& p : toy.state->groups().table) {
      const auto values = download_floats(*be, toy.state->master_of(p));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  EXPECT_EQ(masters(MemoryMode::release), masters(MemoryMode::remake));
}

TEST_P(Exact, Resume) {
  const RunResult whole = run_steps(config_, settings_, 6);
  TemporaryDirectory dir("resume");
  const auto be = make_model_backend(2);
  RunResult resumed;
  TrainToy source(*be, config_, settings_);
  const RunIdentity identity = run_identity(config_, settings_);
  {
    TrainState state(*be, config_, *source.source, settings_);
    Trainer trainer(state);
    for (int64_t i = 0; i < 3; ++i) {
      const PackedBatch b = batch_of_step(config_, i);
      resumed.losses.push_back(trainer.step(std::span(&b, 1)).loss);
    }
    save_checkpoint(dir.path(), state, {trainer.progress, 3}, identity, 2);
  }
  TrainState state(*be, config_, *source.source, settings_);
  Trainer trainer(state);
  const auto found = list_checkpoints(dir.path());
  ASSERT_EQ(found.size(), 1u);
  const RunPosition position = load_checkpoint(found.back().path, state, identity);
  EXPECT_EQ(position.data_position, 3u);
  trainer.progress = position.trainer;
  for (int64_t i = 3; i < 6; ++i) {
    const PackedBatch b = batch_of_step(config_, i);
    resumed.losses.push_back(trainer.step(std::span(&b, 1)).loss);
  }
  resumed.bits = all_bits(state);
  expect_same(whole, resumed);
}

INSTANTIATE_TEST_SUITE_P(
    All, Exact,
    testing::Values(Variant{"tied_fp32", true, DType::f32, Recipe::nvfp4},
                    Variant{"untied_bf16", false, DType::bf16, Recipe::nvfp4},
                    Variant{"tied_fp16_dense", true, DType::f16, Recipe::bf16},
                    Variant{"qwen2_tied_bf16", true, DType::bf16, Recipe::nvfp4, ToyFamily::qwen2},
                    Variant{"qwen2_fp32_dense", false, DType::f32, Recipe::bf16, ToyFamily::qwen2},
                    Variant{"llama_tied_bf16", true, DType::bf16, Recipe::nvfp4, ToyFamily::llama}),
    [](const auto& info) { return std::string(info.param.name); });

// --- Close, within the rounding of the compute type ---

std::vector<std::vector<float>> gradients(const Config& c, const TrainSettings& s,
                                          const std::vector<PackedBatch>& micro) {
  const auto be = make_model_backend(2);
  TrainToy toy(*be, c, s);
  Trainer trainer(*toy.state);
  trainer.accumulate_gradients(micro);
  std::vector<std::vector<float>> all;
  for (const ParamSpec& p : toy.state->groups().table) {
    const Tensor g = grad_of(toy.state->tensors().grads, p);
    if (g) all.push_back(download_floats(*be, g));
  }
  return all;
}

class CloseIn : public testing::TestWithParam<ToyFamily> {};
INSTANTIATE_TEST_SUITE_P(Families, CloseIn,
                         testing::Values(ToyFamily::qwen3, ToyFamily::qwen2, ToyFamily::llama));

TEST_P(CloseIn, OneBatchOfFourIsFourOfOne) {
  const Config c = train_config(true, GetParam());
  TrainSettings s = default_settings();
  s.grad = DType::f32;
  const auto together = gradients(c, s, {random_batch({9, 12, 5, 7}, c.V, 3)});
  std::vector<PackedBatch> apart;
  for (size_t i = 0; i < 4; ++i) {
    const int64_t n[] = {9, 12, 5, 7};
    const auto tokens = random_tokens(n[i] + 1, c.V, 300 + i);
    apart.push_back(
        packed_batch({{tokens.begin(), tokens.end() - 1}}, {{tokens.begin() + 1, tokens.end()}}));
  }
  const auto summed = gradients(c, s, apart);
  ASSERT_EQ(together.size(), summed.size());
  for (size_t i = 0; i < together.size(); ++i) EXPECT_LT(relative_l2(summed[i], together[i]), 2e-5);
}

TEST_P(CloseIn, Bf16ComputeAndGradients) {
  const Config c = train_config(true, GetParam());
  TrainSettings s = default_settings();
  s.grad = DType::f32;
  const std::vector<PackedBatch> batch = {random_batch({20, 30}, c.V, 3)};
  const auto exact = gradients(c, s, batch);
  for (const DType compute : {DType::bf16, DType::f16}) {
    s.compute = compute;
    const auto rounded = gradients(c, s, batch);
    // Heads that are not normalised make scores several times as large, and their roundings.
    const double least = c.qk_norm ? 0.999 : 0.99;
    for (size_t i = 0; i < exact.size(); ++i) EXPECT_GT(cosine(rounded[i], exact[i]), least);
  }
}

// Sums in bf16 are rounded stochastically: no contribution is lost on average.
TEST(Close, AccumulationInBf16IsUnbiased) {
  const Config c = train_config();
  TrainSettings s = default_settings();
  std::vector<PackedBatch> micro;
  for (uint64_t i = 0; i < 16; ++i) micro.push_back(random_batch({20}, c.V, 50 + i));
  const auto rounded = gradients(c, s, micro);
  s.grad = DType::f32;
  const auto exact = gradients(c, s, micro);
  for (size_t i = 0; i < exact.size(); ++i) {
    // 16 roundings of at most 2^-8 of a partial sum each, independent: 4 * 2^-8 would be their
    // standard deviation if every error were the largest one.
    EXPECT_LT(relative_l2(rounded[i], exact[i]), 4.0 / 256) << i;
  }
}

// Where the vocabulary is cut changes the order of fp32 sums, and nothing else: a piece of the
// head's gradient is rounded with the random bits it has in the whole.
TEST(Close, PiecesOfTheVocabularyRoundAlike) {
  for (const bool tied : {true, false}) {
    const Config c = train_config(tied);
    TrainSettings s = default_settings();
    const std::vector<PackedBatch> micro = {batch_of_step(c, 0, 0), batch_of_step(c, 0, 1)};
    const auto cut = gradients(c, s, micro);
    s.logits_bytes = 64 << 20;
    const auto whole = gradients(c, s, micro);
    for (size_t i = 0; i < cut.size(); ++i) {
      if (int64_t(cut[i].size()) < kSmallTensor) continue;  // norms are fp32
      int64_t different = 0;
      for (size_t k = 0; k < cut[i].size(); ++k) different += cut[i][k] != whole[i][k];
      // Sums that differ by some 2^-22 round to another bf16 about once in 2^14 times. Other random
      // bits change a third of a piece, and the second piece is a third of the head.
      EXPECT_LT(different, int64_t(cut[i].size()) / 100) << i;
    }
  }
}

}  // namespace
}  // namespace nibble::test

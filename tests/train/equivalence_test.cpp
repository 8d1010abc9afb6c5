// SPDX-License-Identifier: MIT
// Runs that must give the same bits: recompute, chunks, threads, reruns, released gradients,
// resume. And those that must agree closely: packing, accumulation, bf16.
#include <gtest/gtest.h>

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "backend/recording_backend.h"
#include "backends/cpu/memory.h"
#include "support/golden.h"
#include "support/tested_backend.h"
#include "support/train_toy.h"
#include "train/checkpoint.h"

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

namespace nibble::test {
namespace {

// Large enough for int8 moments and bf16 masters (matrices of 4096 elements and more).
Config train_config(bool tied = true) {
  Config c = toy_config();
  c.C = 64;
  c.Hq = 4;
  c.Hkv = 4;
  c.F = 128;
  c.V = 200;
  c.tied = tied;
  return c;
}

TrainSettings default_settings() {
  TrainSettings s;
  s.schedule.lr = 1e-3;
  s.schedule.steps = 100;
  s.optimizer.weight_decay = 0.01;
  s.seed = 7;
  set_capacity(s, 64, 8);
  s.logits_bytes = 64 * 4 * 128;  // two pieces of the vocabulary
  return s;
}

// Every bit a run has: masters, moments, NVFP4 codes.
std::vector<std::byte> all_bits(TrainState& state) {
  std::vector<std::byte> bits;
  const auto add = [&](Tensor t) {
    const size_t at = bits.size();
    bits.resize(at + t.bytes());
    state.backend().download(bits.data() + at, t);
  };
  for (size_t i = 0; i < state.groups().table.size(); ++i) {
    const ParamSpec& p = state.groups().table[i];
    add(state.master_of(p));
    const Moments& m = state.tensors().moments[i];
    if (m.m) add(m.m), add(m.v);
    if (const LinearWeight* w = state.packed_of(p)) {
      std::vector<uint8_t> codes(size_t(p.numel() / 2)), scales(size_t(p.numel() / 16));
      state.backend().unpack_rows(*w, p.row_offset, p.shape[0], codes, scales);
      for (const uint8_t b : codes) bits.push_back(std::byte(b));
      for (const uint8_t b : scales) bits.push_back(std::byte(b));
    }
  }
  return bits;
}

struct RunResult {
  std::vector<std::byte> bits;
  std::vector<double> losses;
};

PackedBatch batch_of_step(const Config& c, int64_t step, int64_t micro = 0) {
  return random_batch({9, 17, 5}, c.V, uint64_t(step * 10 + micro + 1));
}

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
};

class Exact : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    config_ = train_config(GetParam().tied);
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
  settings_.recompute = true;
  expect_same(plain_, run_steps(config_, settings_, 4));
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
  settings_.recompute = true;
  expect_same(resident, run_steps(config_, settings_, 4));
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
  const RunIdentity identity = run_identity(config_, *source.source, settings_);
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

INSTANTIATE_TEST_SUITE_P(All, Exact,
                         testing::Values(Variant{"tied_fp32", true, DType::f32, Recipe::nvfp4},
                                         Variant{"untied_bf16", false, DType::bf16, Recipe::nvfp4},
                                         Variant{"tied_fp16_dense", true, DType::f16,
                                                 Recipe::bf16}),
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

TEST(Close, OneBatchOfFourIsFourOfOne) {
  const Config c = train_config();
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

TEST(Close, Bf16ComputeAndGradients) {
  const Config c = train_config();
  TrainSettings s = default_settings();
  s.grad = DType::f32;
  const std::vector<PackedBatch> batch = {random_batch({20, 30}, c.V, 3)};
  const auto exact = gradients(c, s, batch);
  for (const DType compute : {DType::bf16, DType::f16}) {
    s.compute = compute;
    const auto rounded = gradients(c, s, batch);
    for (size_t i = 0; i < exact.size(); ++i) EXPECT_GT(cosine(rounded[i], exact[i]), 0.999);
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

TEST(Freezing, FrozenParametersHaveNothingAndStay) {
  const Config c = train_config(false);
  TrainSettings s = default_settings();
  s.lr_scale = {{"k_proj", 0}, {"embed_tokens", 0}, {"layers.0-1", 0}, {"norm", 0}};
  const auto be = make_model_backend(2);
  TrainToy toy(*be, c, s);
  TrainState& state = *toy.state;
  std::vector<std::vector<float>> before;
  for (const ParamSpec& p : state.groups().table) {
    before.push_back(download_floats(*be, state.master_of(p)));
  }
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
    const bool same = before[i] == download_floats(*be, state.master_of(p));
    EXPECT_EQ(same, frozen) << p.name;
    moved += !same;
  }
  EXPECT_GT(moved, 4);
}

// Nothing is taken from the system after the first step of the largest batch, and what the heap
// lends during a step comes back.
TEST(SteadyState, NothingGrows) {
  const Config c = train_config();
  for (const MemoryMode memory : {MemoryMode::resident, MemoryMode::release, MemoryMode::remake}) {
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
  for (const bool recompute : {false, true}) {
    for (const MemoryMode memory :
         {MemoryMode::resident, MemoryMode::release, MemoryMode::remake}) {
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

// SPDX-License-Identifier: MIT
// What rounding costs: held-out loss of NVFP4 against bf16, of 8-bit against fp32 moments, of a
// bf16 against an fp32 master, on text from a random source. Same data and weights for all, the
// mean of three seeds, beside the spread between seeds. docs/benchmarks/quality.md has the large
// version.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "backend/download.h"
#include "support/golden.h"
#include "train/learning_support.h"

namespace nibble::test {
namespace {

struct Kind {
  const char* name;
  Recipe recipe = Recipe::nvfp4;
  MomentFormat moments = MomentFormat::int8;
  DType master = DType::bf16;
  UpdateFrom from = UpdateFrom::master;
};

struct Size {
  Config config;
  int64_t symbols, steps, windows, rows;
  double lr;
};

constexpr int64_t kHeldOutWindows = 64;

Size small_size() {
  Config c = learner_config(64, 2);
  c.V = 64;  // matrices of 4096 elements and more have packed moments
  return {c, 16, 300, 16, 32, 3e-3};
}

Size large_size() {
  Config c = learner_config(128, 3);
  c.V = 64;
  return {c, 24, 800, 16, 64, 2e-3};
}

struct Losses {
  std::vector<double> of_seed;

  double mean() const {
    double sum = 0;
    for (const double x : of_seed) sum += x;
    return sum / double(of_seed.size());
  }
  // The standard deviation between seeds.
  double spread() const {
    double sum = 0;
    for (const double x : of_seed) sum += (x - mean()) * (x - mean());
    return of_seed.size() < 2 ? 0 : std::sqrt(sum / double(of_seed.size() - 1));
  }
};

struct Measured {
  double floor = 0;
  std::vector<Losses> of_kind;
};

// A run of each kind with each seed. A seed is the weights, the data and the rounding; held-out
// text and source are the same for all.
Measured measure(const Size& size, std::span<const Kind> kinds, int64_t seeds) {
  const Source source(size.symbols, 5);
  const Source::Text held_out = source.text(kHeldOutWindows, size.rows, 777, 0);
  Measured result{held_out.floor, std::vector<Losses>(kinds.size())};
  std::vector<std::unique_ptr<Beginning>> beginnings;
  for (int64_t s = 0; s < seeds; ++s) {
    beginnings.push_back(std::make_unique<Beginning>(size.config, uint64_t(s + 1)));
  }
  for (Losses& l : result.of_kind) l.of_seed.resize(size_t(seeds));
  // Each run has one thread, which is the best use of two: the steps are short.
  ThreadPool pool(2);
  pool.parallel_for(int64_t(kinds.size()) * seeds, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Kind& kind = kinds[size_t(i / seeds)];
      const int64_t seed = i % seeds;
      const Beginning& from = *beginnings[size_t(seed)];
      TrainSettings s;
      s.recipe = kind.recipe;
      s.master = kind.master;
      s.optimizer.moments = kind.moments;
      s.optimizer.from = kind.from;
      s.schedule = cosine(size.lr, size.steps);
      s.seed = uint64_t(seed);
      set_capacity(s, kHeldOutWindows * size.rows, kHeldOutWindows);
      const auto be = make_model_backend(1);
      TrainState state(*be, from.config, *from.source, s);
      Trainer trainer(state);
      const bool finite = train(trainer, [&](int64_t step) {
        return source.text(size.windows, size.rows, uint64_t(seed + 1), step).batch;
      });
      result.of_kind[size_t(i / seeds)].of_seed[size_t(seed)] =
          finite ? trainer.evaluate(held_out.batch) : std::numeric_limits<double>::infinity();
    }
  });
  return result;
}

void print(const Measured& m, std::span<const Kind> kinds) {
  std::printf("the source itself: %.4f\n", m.floor);
  std::printf("| %-28s | %-24s | mean   | spread | against the first |\n", "run", "held-out loss");
  std::printf("|%s|%s|---|---|---|\n", std::string(30, '-').c_str(), std::string(26, '-').c_str());
  const double first = m.of_kind.front().mean();
  for (size_t k = 0; k < kinds.size(); ++k) {
    const Losses& l = m.of_kind[k];
    std::string each;
    for (const double x : l.of_seed) {
      char text[32];
      std::snprintf(text, sizeof text, "%.4f ", x);
      each += text;
    }
    std::printf("| %-28s | %-24s | %.4f | %.4f | %+.2f %% |\n", kinds[k].name, each.c_str(),
                l.mean(), l.spread(), 100 * (l.mean() / first - 1));
  }
}

// targets.md, Quality.
void expect_close(const Losses& rounded, const Losses& wide, double share) {
  EXPECT_GT(wide.mean(), 0.5);  // a gap in percent means little near zero
  const double allowed = std::max(share * wide.mean(), wide.spread());
  EXPECT_LE(rounded.mean() - wide.mean(), allowed);
}

TEST(Quality, GapsOfWeightsMomentsAndMaster) {
  const Kind kinds[] = {
      {"default"},
      {"recipe bf16", Recipe::bf16},
      {"moments fp32", Recipe::nvfp4, MomentFormat::f32},
      {"master fp32", Recipe::nvfp4, MomentFormat::int8, DType::f32},
  };
  const Measured m = measure(small_size(), kinds, 3);
  print(m, kinds);
  const Losses &usual = m.of_kind[0], &dense = m.of_kind[1];
  // Learned, or there would be nothing to compare: text without order would be at 2.7.
  EXPECT_LT(dense.mean(), 1.06 * m.floor);
  EXPECT_GT(dense.mean(), m.floor);
  EXPECT_LE(usual.mean(), 1.01 * dense.mean());
  expect_close(usual, m.of_kind[2], 0.002);
  expect_close(usual, m.of_kind[3], 0.002);
}

// A linear code stores most of v as zero; these runs end where they would without learning, or
// worse.
TEST(Quality, LinearMomentsDoNotTrain) {
  const Kind kinds[] = {{"default"},
                        {"moments int8-linear", Recipe::nvfp4, MomentFormat::int8_linear}};
  const Measured m = measure(small_size(), kinds, 1);
  print(m, kinds);
  EXPECT_GT(m.of_kind[1].mean(), 1.2 * m.of_kind[0].mean());
}

// Some minutes; docs/benchmarks/quality.md says how it is called and what it said.
TEST(Quality, DISABLED_Table) {
  const Kind kinds[] = {
      {"default"},
      {"recipe bf16", Recipe::bf16},
      {"moments fp32", Recipe::nvfp4, MomentFormat::f32},
      {"moments bf16", Recipe::nvfp4, MomentFormat::bf16},
      {"moments nvfp4", Recipe::nvfp4, MomentFormat::nvfp4},
      {"moments int8-linear", Recipe::nvfp4, MomentFormat::int8_linear},
      {"master fp32", Recipe::nvfp4, MomentFormat::int8, DType::f32},
      {"bf16, both fp32", Recipe::bf16, MomentFormat::f32, DType::f32},
      {"update-from quantised", Recipe::nvfp4, MomentFormat::int8, DType::bf16,
       UpdateFrom::quantised},
  };
  const Size size = large_size();
  const auto start = std::chrono::steady_clock::now();
  const Measured m = measure(size, kinds, 3);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  std::printf("%lld parameters, %lld steps of %lld tokens, %.0f s\n",
              static_cast<long long>(size.config.parameter_count()),
              static_cast<long long>(size.steps), static_cast<long long>(size.windows * size.rows),
              time.count());
  print(m, kinds);
  EXPECT_LE(m.of_kind[0].mean(), 1.01 * m.of_kind[1].mean());
  expect_close(m.of_kind[0], m.of_kind[2], 0.002);
  expect_close(m.of_kind[0], m.of_kind[6], 0.002);
}

// --- Gradients that shrink ---

// The last update, divided by the learning rate, of a run whose gradients became a fifth of what
// they were long enough ago for v to have followed. The learning rate is so small that the weights
// stay where they are: every format sees the same gradients.
std::vector<float> update_after_shrinking(const Beginning& beginning, MomentFormat format) {
  constexpr double kLr = 1e-5, kClip = 0.05;
  constexpr int64_t kBefore = 300, kAfter = 1500;
  const auto be = make_model_backend(1);
  TrainSettings s;
  s.recipe = Recipe::bf16;
  s.master = s.grad = DType::f32;
  s.optimizer.moments = format;
  s.schedule.lr = 1e-9;
  s.optimizer.grad_clip = kClip;  // always active: gradients have this norm
  set_capacity(s, 64, 4);
  const auto step = [&](Trainer& t) {
    const PackedBatch b =
        random_batch({16, 16, 16, 16}, beginning.config.V, uint64_t(t.progress.step + 1));
    const StepResult r = t.step(std::span(&b, 1));
    EXPECT_LT(r.clip, 1);
  };
  TrainState first(*be, beginning.config, *beginning.source, s);
  Trainer before(first);
  for (int64_t i = 0; i < kBefore; ++i) step(before);

  s.optimizer.grad_clip = kClip / 5;
  const auto go_on = [&](TrainState& from, TrainState& to, Trainer& trainer, int64_t steps) {
    for (size_t i = 0; i < from.tensors().moments.size(); ++i) {
      const Moments &a = from.tensors().moments[i], &b = to.tensors().moments[i];
      if (!a.m) continue;
      be->copy(b.m, a.m);
      be->copy(b.v, a.v);
    }
    for (int64_t i = 0; i < steps; ++i) step(trainer);
  };
  TrainState second(*be, beginning.config, *beginning.source, s);
  Trainer after(second);
  after.progress = before.progress;
  go_on(first, second, after, kAfter);

  s.schedule.lr = kLr;
  TrainState third(*be, beginning.config, *beginning.source, s);
  Trainer last(third);
  last.progress = after.progress;
  go_on(second, third, last, 1);
  std::vector<float> update;
  TrainState begun(*be, beginning.config, *beginning.source, s);
  for (const ParamSpec& p : third.groups().table) {
    if (p.numel() < kSmallTensor || p.slot == ParamSlot::head) continue;
    const auto then = download_floats(*be, begun.master_of(p));
    const auto now = download_floats(*be, third.master_of(p));
    for (size_t i = 0; i < now.size(); ++i) update.push_back(float((then[i] - now[i]) / kLr));
  }
  return update;
}

TEST(Quality, TheSecondMomentFollowsShrinkingGradients) {
  Config c = learner_config(64, 1);
  c.V = 64;
  const Beginning beginning(c, 1);
  const MomentFormat formats[] = {MomentFormat::f32, MomentFormat::int8};
  std::vector<std::vector<float>> updates(std::size(formats));
  ThreadPool pool(2);
  pool.parallel_for(int64_t(updates.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      updates[size_t(i)] = update_after_shrinking(beginning, formats[i]);
    }
  });
  const double error = relative_l2(updates[1], updates[0]);
  std::printf("update error of int8 moments: %.1f %%\n", 100 * error);
  EXPECT_LT(error, 0.2);
}

}  // namespace
}  // namespace nibble::test

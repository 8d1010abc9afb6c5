// SPDX-License-Identifier: MIT
// A model made of random weights learns a task it cannot know by heart, with every setting at its
// default; the file it exports does the task through the inference path. And what keeps a model
// from learning: updates of the 4-bit copy.
#include <gtest/gtest.h>

#include "generate/generator.h"
#include "train/export_weights.h"
#include "train/learning_support.h"

namespace nibble::test {
namespace {

constexpr int64_t kBatch = 64, kHeldOut = 200;

struct Learner {
  Reversal task;
  Beginning beginning;
  std::unique_ptr<Backend> backend = make_model_backend(2);
  std::unique_ptr<TrainState> state;
  std::unique_ptr<Trainer> trainer;
  std::vector<Tokens> held_out = task.draw(kHeldOut, Split::held_out, 99, 0);

  explicit Learner(const Schedule& schedule, UpdateFrom from = UpdateFrom::master)
      : beginning(config(), 1) {
    TrainSettings s;
    s.schedule = schedule;
    s.optimizer.from = from;
    set_capacity(s, task.rows(kHeldOut), kHeldOut);
    state = std::make_unique<TrainState>(*backend, beginning.config, *beginning.source, s);
    trainer = std::make_unique<Trainer>(*state);
  }

  static Config config() {
    Config c = learner_config(128, 2);
    c.V = 32;
    return c;
  }

  void learn() {
    ASSERT_TRUE(train(*trainer, [&](int64_t step) {
      return Reversal::batch(task.draw(kBatch, Split::training, 1, step));
    }));
  }
  double held_out_loss() { return trainer->evaluate(Reversal::batch(held_out)); }

  // The NVFP4 codes of every linear layer.
  std::vector<uint8_t> codes() const {
    std::vector<uint8_t> all;
    for (const ParamSpec& p : state->groups().table) {
      const LinearWeight* w = state->packed_of(p);
      if (!w) continue;
      std::vector<uint8_t> some(size_t(p.numel() / 2)), scales(size_t(p.numel() / 16));
      backend->unpack_rows(*w, p.row_offset, p.shape[0], some, scales);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
};

double share_of_changes(const std::vector<uint8_t>& before, const std::vector<uint8_t>& now) {
  size_t changed = 0;
  for (size_t i = 0; i < now.size(); ++i) changed += before[i] != now[i];
  return double(changed) / double(now.size());
}

// The share of sequences whose reversal is generated to the letter, with its end.
double share_reversed(Backend& be, const Model& model, const std::vector<Tokens>& sequences,
                      Activations activations) {
  EngineOptions e;
  e.context = 64;
  e.activations = activations;
  Engine engine(be, model, e);
  GenerateOptions g;
  g.max_tokens = 20;
  g.stop_ids = {Reversal::kEnd};
  int64_t right = 0;
  for (const Tokens& s : sequences) {
    engine.reset();
    const GenerateResult r = generate(engine, Reversal::prompt(s), g);
    right += r.reason == FinishReason::stop && r.ids == Tokens(s.rbegin(), s.rend());
  }
  return double(right) / double(sequences.size());
}

TEST(Learning, TheExportedFileReversesWhatItHasNeverSeen) {
  Learner l(cosine(3e-3, 250));
  const double before = l.held_out_loss();
  l.learn();
  const double after = l.held_out_loss();
  std::printf("%lld parameters, held-out loss %.4f, after 250 steps %.4f\n",
              static_cast<long long>(l.beginning.config.parameter_count()), before, after);
  EXPECT_GT(before, std::log(double(l.task.symbols)));  // random weights know nothing
  EXPECT_LT(after, 0.02);

  const auto file = l.beginning.directory.path() / "learned.dat";
  ThreadPool pool(2);
  export_weights(*l.beginning.source, *l.state, l.beginning.config, file, pool);
  const auto written = open_tensor_source(file);
  const Model model = load_model(*l.backend, l.beginning.config, *written, {});
  const Model untrained =
      load_model(*l.backend, l.beginning.config, *l.beginning.source, {Recipe::nvfp4, {}, {}, {}});
  EXPECT_EQ(share_reversed(*l.backend, untrained, l.held_out, Activations::none), 0);
  for (const Activations a : {Activations::none, Activations::int8}) {
    if (a == Activations::int8 && testing_cuda()) continue;  // a mode of the CPU
    const double share = share_reversed(*l.backend, model, l.held_out, a);
    std::printf("%s activations: %.1f %% reversed\n", a == Activations::int8 ? "int8" : "plain",
                100 * share);
    EXPECT_GE(share, 0.95);
  }
}

// An update smaller than half a step between 4-bit values vanishes when it is applied to them; the
// master keeps it. Same weights, same data, same learning rate.
TEST(Learning, UpdatesOfTheQuantisedCopyLearnNothing) {
  const Schedule schedule = cosine(3e-4, 100);
  Learner master(schedule), quantised(schedule, UpdateFrom::quantised);
  const std::vector<uint8_t> codes = master.codes();
  const double before = master.held_out_loss();
  master.learn();
  quantised.learn();
  const double moved = share_of_changes(codes, master.codes());
  const double stuck = share_of_changes(codes, quantised.codes());
  const double learned = master.held_out_loss(), failed = quantised.held_out_loss();
  std::printf("held-out loss %.4f; after 100 steps of lr 3e-4\n", before);
  std::printf("  from the master:         %.4f, %.2f %% of the bytes of codes changed\n", learned,
              100 * moved);
  std::printf("  from the quantised copy: %.4f, %.2f %%\n", failed, 100 * stuck);
  const double chance = std::log(double(master.task.symbols));
  EXPECT_LT(learned, 0.75 * chance);
  EXPECT_GT(moved, 0.1);
  EXPECT_GT(failed, chance);  // only the norms learn
  // Codes flip to and fro where both scales of a block fit it equally well; that adds up to
  // nothing.
  EXPECT_LT(stuck, moved / 4);
}

}  // namespace
}  // namespace nibble::test

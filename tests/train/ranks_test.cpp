// SPDX-License-Identifier: MIT
// Several ranks against one: the same bits, whatever the number of ranks. Ranks are threads here,
// so that this holds where there is no MPI; tests/ranks starts processes.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <numeric>

#include "optim/moment_part.h"
#include "support/backends.h"
#include "support/thread_ranks.h"
#include "train/checkpoint.h"
#include "train/ranks/rank_exchange.h"
#include "train/ranks/wire_bytes.h"
#include "train/run_support.h"

namespace nibble::test {
namespace {

// Parameters of several chunks, whose rows do not end where chunks do, with a last block that is
// not whole.
Config config_of_chunks(bool tied, ToyFamily family) {
  Config c = train_config(tied, family);
  c.C = 224, c.D = 32, c.Hq = 7, c.Hkv = 1, c.F = 320, c.V = 401, c.L = 4;
  return c;
}

TrainSettings exact_settings() {
  TrainSettings s = default_settings();
  s.grad = DType::f32;
  s.shard_window = 1;  // a chunk at a time: several exchanges a layer
  return s;
}

constexpr int64_t kMicro = 4;

std::vector<PackedBatch> batches_of_step(const Config& c, int64_t step) {
  std::vector<PackedBatch> all;
  for (int64_t k = 0; k < kMicro; ++k) all.push_back(batch_of_step(c, step, k));
  return all;
}

// Every bit of a run: masters, moments, NVFP4 rows; of several ranks on rank 0, by calls of all.
std::vector<std::byte> bits_over_ranks(TrainState& state, RankExchange* ranks) {
  std::vector<std::byte> bits;
  const ParamGroups& g = state.groups();
  if (ranks) {
    state.fetch = [ranks](StateBytes what, size_t i, uint64_t at, std::span<std::byte> out) {
      ranks->fetch(what, i, at, out.size(), out);
    };
  }
  for (size_t i = 0; i < g.table.size(); ++i) {
    if (!g.trained[i]) continue;
    const ParamSpec& p = g.table[i];
    const DType type = master_type_of(g, state.settings(), p);
    for (const StateBytes what : {StateBytes::master, StateBytes::m, StateBytes::v}) {
      const size_t n = what == StateBytes::master
                           ? size_t(p.numel()) * dtype_bytes(type)
                           : moment_bytes(state.tensors().moments[i].format, p.numel());
      std::vector<std::byte> some(n);
      state.read_bytes(what, i, 0, some);
      bits.insert(bits.end(), some.begin(), some.end());
    }
  }
  for (const ParamSpec& p : g.table) add_packed_bits(state, p, bits);
  return bits;
}

struct Told {
  std::vector<std::byte> bits;
  std::vector<StepResult> steps;
  TrainerProgress progress;
};

// NaN is the same as NaN.
bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void expect_same(const Told& got, const Told& want) {
  ASSERT_EQ(got.steps.size(), want.steps.size());
  for (size_t i = 0; i < want.steps.size(); ++i) {
    EXPECT_PRED2(same, got.steps[i].loss, want.steps[i].loss) << i;
    EXPECT_PRED2(same, got.steps[i].grad_norm, want.steps[i].grad_norm) << i;
    EXPECT_EQ(got.steps[i].clip, want.steps[i].clip) << i;
    EXPECT_EQ(got.steps[i].tokens, want.steps[i].tokens) << i;
    EXPECT_EQ(got.steps[i].skipped, want.steps[i].skipped) << i;
  }
  EXPECT_EQ(got.progress.micro_batches, want.progress.micro_batches);
  EXPECT_EQ(got.progress.updates, want.progress.updates);
  ASSERT_EQ(got.bits.size(), want.bits.size());
  const size_t bad = size_t(std::ranges::mismatch(got.bits, want.bits).in1 - got.bits.begin());
  EXPECT_EQ(bad, want.bits.size()) << "byte " << bad;
}

// One of several ranks, from a file on.
struct OneRank {
  TrainSettings settings;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<TensorSource> source;
  TrainState state;
  RankExchange exchange;
  Trainer trainer;
  OneRank(Comm& comm, const Config& c, const std::filesystem::path& file,
          const TrainSettings& asked)
      : settings(of_rank(asked, comm)),
        backend(make_cpu_backend(1)),
        source(open_tensor_source(file)),
        state(*backend, c, *source, settings),
        exchange(comm, state),
        trainer(state, &exchange) {}

 private:
  static TrainSettings of_rank(TrainSettings s, const Comm& comm) {
    s.ranks = comm.size(), s.rank = comm.rank();
    return s;
  }
};

class Ranks : public testing::Test {
 protected:
  // So many steps by so many ranks; 0: alone.
  Told train(int ranks, const Config& c, TrainSettings s, int64_t steps = 3,
             MemoryMode mode = MemoryMode::sharded) {
    TemporaryDirectory directory("ranks");
    const auto file = directory.path() / "model.safetensors";
    write_toy_weights(c, file);
    const auto body = [&](RankExchange* exchange, TrainState& state, Told& told) {
      Trainer trainer(state, exchange);
      for (int64_t k = 0; k < steps; ++k) {
        told.steps.push_back(trainer.step(batches_of_step(c, k)));
      }
      told.progress = trainer.progress;
      told.bits = bits_over_ranks(state, exchange);
    };
    std::vector<Told> told(size_t(std::max(1, ranks)));
    if (ranks == 0) {
      const auto be = make_cpu_backend(1);
      const auto source = open_tensor_source(file);
      TrainState state(*be, c, *source, s);
      body(nullptr, state, told[0]);
      return told[0];
    }
    ThreadRanks(ranks).run([&](Comm& comm) {
      TrainSettings own = s;
      own.memory = mode;
      own.ranks = comm.size(), own.rank = comm.rank();
      const auto be = make_cpu_backend(1);
      const auto source = open_tensor_source(file);
      TrainState state(*be, c, *source, own);
      RankExchange exchange(comm, state);
      body(&exchange, state, told[size_t(comm.rank())]);
    });
    for (const Told& other : told) {
      EXPECT_EQ(other.progress.micro_batches, told[0].progress.micro_batches);
      for (size_t i = 0; i < other.steps.size(); ++i) {
        EXPECT_PRED2(same, other.steps[i].loss, told[0].steps[i].loss);
        EXPECT_PRED2(same, other.steps[i].grad_norm, told[0].steps[i].grad_norm);
      }
    }
    return told[0];
  }
  void expect_equal(const Config& c, const TrainSettings& s) {
    const Told alone = train(0, c, s);
    for (const StepResult& r : alone.steps) EXPECT_FALSE(r.skipped) << r.problem;
    for (const int n : {1, 2, 4}) {
      SCOPED_TRACE(n);
      for (const MemoryMode mode : kMemoryModesOfRanks) {
        SCOPED_TRACE(memory_mode_name(mode));
        expect_same(train(n, c, s, 3, mode), alone);
      }
    }
  }
};

TEST_F(Ranks, HaveTheBitsOfOneThatAccumulates) {
  for (const ToyFamily family : {ToyFamily::qwen3, ToyFamily::qwen2}) {
    for (const bool tied : {true, false}) {
      SCOPED_TRACE(tied);
      expect_equal(config_of_chunks(tied, family), exact_settings());
    }
  }
}

TEST_F(Ranks, HaveThemWithTheScalarLoss) {
  for (const bool tied : {true, false}) {
    TrainSettings s = exact_settings();
    s.loss = LossKind::scalar;
    expect_equal(config_of_chunks(tied, ToyFamily::qwen3), s);
  }
}

TEST_F(Ranks, HaveThemWithDenseLayersAndHeads) {
  TrainSettings s = exact_settings();
  s.head_recipe = Recipe::bf16;
  expect_equal(config_of_chunks(true, ToyFamily::qwen3), s);
  s.recipe = Recipe::bf16;
  expect_equal(config_of_chunks(false, ToyFamily::qwen3), s);
}

TEST_F(Ranks, HaveThemWithEveryFormatOfMoments) {
  for (const MomentFormat format :
       {MomentFormat::f32, MomentFormat::bf16, MomentFormat::nvfp4, MomentFormat::int8_linear}) {
    TrainSettings s = exact_settings();
    s.optimizer.moments = format;
    if (format == MomentFormat::int8_linear) s.schedule.lr = 1e-7;  // it explodes otherwise
    expect_equal(config_of_chunks(true, ToyFamily::qwen3), s);
  }
}

TEST_F(Ranks, HaveThemWithFrozenPartsFp32MastersAndRecomputation) {
  TrainSettings s = exact_settings();
  s.master = DType::f32;
  s.recompute = Recompute::block;
  s.optimizer.grad_clip = 0.01;
  s.lr_scale = parse_lr_scales("k_proj=0,embed_tokens=0.5,layers.0.mlp=0");
  expect_equal(config_of_chunks(false, ToyFamily::qwen3), s);
  s.lr_scale = parse_lr_scales("embed_tokens=0");
  expect_equal(config_of_chunks(true, ToyFamily::qwen3), s);
}

TEST_F(Ranks, HaveThemFromMastersThatTheUpdateIsNotTakenFrom) {
  TrainSettings s = exact_settings();
  s.optimizer.from = UpdateFrom::quantised;
  expect_equal(config_of_chunks(false, ToyFamily::qwen3), s);
}

// Gradients of bf16 are rounded once on their rank and added in fp32: not the bits of one rank, but
// the same for any number of several.
TEST_F(Ranks, GradientsOfBf16AreTheSameForAnyNumberAndCloseToOne) {
  const Config c = config_of_chunks(true, ToyFamily::qwen3);
  TrainSettings s = exact_settings();
  s.grad = DType::bf16;
  const Told alone = train(0, c, s, 1), two = train(2, c, s, 1), four = train(4, c, s, 1);
  expect_same(four, two);
  // Each rounding moves an element by 2^-8 of a partial sum at most. There are kMicro of them in
  // the worse of the two, a partial sum is at most the sum of the parts' norms, and those are each
  // at most the largest of a micro-batch alone, which is below kMicro times the norm of the sum
  // here: far above what is seen.
  EXPECT_EQ(two.steps[0].loss, alone.steps[0].loss);
  EXPECT_NEAR(two.steps[0].grad_norm, alone.steps[0].grad_norm,
              0x1p-8 * kMicro * kMicro * alone.steps[0].grad_norm);
}

TEST_F(Ranks, WhatIsNotFiniteIsSkippedByAll) {
  const Config c = config_of_chunks(true, ToyFamily::qwen3);
  TrainSettings s = exact_settings();
  s.schedule.lr = 1e30;  // the step after the first is lost
  const Told alone = train(0, c, s, 2);
  ASSERT_TRUE(alone.steps.back().skipped);
  for (const int n : {2, 4}) expect_same(train(n, c, s, 2), alone);
}

TEST_F(Ranks, OneThatGivesUpGivesUpForAll) {
  const Config c = config_of_chunks(true, ToyFamily::qwen3);
  TemporaryDirectory directory("ranks");
  const auto file = directory.path() / "model.safetensors";
  write_toy_weights(c, file);
  ThreadRanks(2).run([&](Comm& comm) {
    TrainSettings asked = exact_settings();
    asked.memory = MemoryMode::sharded;
    OneRank self(comm, c, file, asked);
    auto& [s, be, source, state, exchange, trainer] = self;
    trainer.give_up = [&] { return comm.leads(); };
    const StepResult r = trainer.step(batches_of_step(c, 0));
    EXPECT_TRUE(r.given_up);
    EXPECT_EQ(trainer.progress.micro_batches, 0);
    EXPECT_EQ(trainer.progress.step, 0);
  });
}

// Rounds after the first find the first two blocks where the round before left them.
TEST_F(Ranks, GatherWhatIsNotThere) {
  Config c = config_of_chunks(true, ToyFamily::qwen3);
  c.L = 5;
  TemporaryDirectory directory("ranks");
  const auto file = directory.path() / "model.safetensors";
  write_toy_weights(c, file);
  ThreadRanks(2).run([&](Comm& comm) {
    TrainSettings asked = exact_settings();
    asked.memory = MemoryMode::gathered;
    OneRank self(comm, c, file, asked);
    auto& [s, be, source, state, exchange, trainer] = self;
    const auto sent_by_step = [&](int64_t rounds) {
      std::vector<PackedBatch> batches;
      for (int64_t k = 0; k < 2 * rounds; ++k) batches.push_back(batch_of_step(c, 0, 0));
      const uint64_t before = exchange.bytes_sent();
      trainer.step(batches);
      exchange.settle();
      return exchange.bytes_sent() - before;
    };
    const WireBytes plan = wire_bytes(state.groups(), c, s, comm.rank());
    EXPECT_LT(plan.blocks_again, plan.blocks);
    const uint64_t one = sent_by_step(1), two = sent_by_step(2), three = sent_by_step(3);
    EXPECT_EQ(three - two, two - one);
    // Beside rows of the embedding, which are the same in every round, and two losses; and whether
    // rank 0 gives up.
    const uint64_t rows = one - plan.gradients - plan.weights - plan.blocks;
    EXPECT_GT(three - two, plan.gradients + plan.blocks_again);
    EXPECT_LT(three - two, plan.gradients + plan.blocks_again + rows);
    EXPECT_EQ(trainer.progress.updates, 3);
  });
}

// Between two steps all can ask, too: what is there is of the weights before.
TEST_F(Ranks, ABlockIsLentToRank0) {
  const Config c = config_of_chunks(true, ToyFamily::qwen3);
  TemporaryDirectory directory("ranks");
  const auto file = directory.path() / "model.safetensors";
  write_toy_weights(c, file);
  const TrainSettings exact = exact_settings();
  double alone = 0;
  {
    const auto be = make_cpu_backend(1);
    const auto source = open_tensor_source(file);
    TrainState state(*be, c, *source, exact);
    Trainer trainer(state);
    trainer.step(batches_of_step(c, 0));
    alone = trainer.evaluate(batch_of_step(c, 7));
  }
  ThreadRanks(2).run([&](Comm& comm) {
    TrainSettings asked = exact;
    asked.memory = MemoryMode::gathered;
    OneRank self(comm, c, file, asked);
    auto& [s, be, source, state, exchange, trainer] = self;
    trainer.step(batches_of_step(c, 0));
    int64_t lent = 0;
    if (comm.leads()) {
      exchange.call_others = [&](int64_t layer) {
        EXPECT_EQ(layer, lent++);
        exchange.lend_block(layer);
      };
      EXPECT_EQ(trainer.evaluate(batch_of_step(c, 7)), alone);
      EXPECT_EQ(lent, c.L);
    } else {
      for (int64_t layer = 0; layer < c.L; ++layer) exchange.lend_block(layer);
    }
    exchange.call_others = nullptr;
    EXPECT_FALSE(trainer.step(batches_of_step(c, 1)).skipped);
  });
}

// A step does not wait for the weights it updated, a forward waits for them layer by layer, and
// whoever reads the state waits for all.
TEST_F(Ranks, TheWireIsBesideTheWork) {
  const Config c = config_of_chunks(false, ToyFamily::qwen3);
  TemporaryDirectory directory("ranks");
  const auto file = directory.path() / "model.safetensors";
  write_toy_weights(c, file);
  std::atomic<bool> open = true;
  ThreadRanks ranks(2);
  ranks.before_beside = [&](int) { open.wait(false); };
  ranks.run([&](Comm& comm) {
    TrainSettings asked = exact_settings();
    asked.memory = MemoryMode::sharded;
    OneRank self(comm, c, file, asked);
    auto& [s, be, source, state, exchange, trainer] = self;
    // The wire is cut when the gradients are through.
    trainer.phase = [&](const char* name) {
      if (std::string(name) != "backward_done") return;
      exchange.settle();
      comm.barrier();
      open = false;
      comm.barrier();
    };
    trainer.step(batches_of_step(c, 0));  // returns all the same
    comm.barrier();
    open = true;
    open.notify_all();
    trainer.phase = nullptr;
    trainer.step(batches_of_step(c, 1));
    EXPECT_EQ(trainer.progress.updates, 2);
  });
}

// What a rank sends is what the plan says, to the byte.
TEST_F(Ranks, SendWhatThePlanSays) {
  for (const bool tied : {true, false}) {
    for (const auto& [mode, grad] : {std::pair(MemoryMode::sharded, DType::f32),
                                     {MemoryMode::sharded, DType::bf16},
                                     {MemoryMode::gathered, DType::bf16}}) {
      const Config c = config_of_chunks(tied, ToyFamily::qwen3);
      TemporaryDirectory directory("ranks");
      const auto file = directory.path() / "model.safetensors";
      write_toy_weights(c, file);
      std::vector<uint64_t> sent(4), blocks(4);
      ThreadRanks(4).run([&](Comm& comm) {
        TrainSettings asked = exact_settings();
        asked.memory = mode;
        asked.grad = grad;
        OneRank self(comm, c, file, asked);
        auto& [s, be, source, state, exchange, trainer] = self;
        const std::vector<PackedBatch> batches = batches_of_step(c, 0);
        const uint64_t before = exchange.bytes_sent();
        trainer.step(batches);
        exchange.settle();
        const WireBytes plan = wire_bytes(state.groups(), c, s, comm.rank());
        // Rows of the embedding that this rank does not own, and numbers: two losses and the
        // squares of its chunks, to three others.
        const Shards shards(state.groups(), c, 4, s.shard_window);
        uint64_t rows = 0, chunks = 0;
        for (int r = 0; r < 4; ++r) {
          for (const ShardPiece& p : shards.owned(r)) {
            if (r == comm.rank()) chunks += uint64_t((p.count + kShardChunk - 1) / kShardChunk);
            if (r == comm.rank() || state.groups().table[p.param].slot != ParamSlot::embed)
              continue;
            const auto tokens = tokens_of_batch(batches[size_t(comm.rank())]);
            for (const int32_t id : tokens.ids) {
              const int64_t begin = std::max(p.begin, id * c.C);
              const int64_t end = std::min(p.begin + p.count, (id + 1) * c.C);
              rows += uint64_t(std::max<int64_t>(0, end - begin)) * dtype_bytes(grad);
            }
          }
        }
        const uint64_t numbers = 3 * 8 * (2 + chunks);
        EXPECT_EQ(exchange.bytes_sent() - before,
                  plan.gradients + rows + plan.weights + plan.blocks + numbers);
        // The next step begins with other weights, and so with all blocks again.
        EXPECT_EQ(plan.blocks > 0, s.memory == MemoryMode::gathered);
        const uint64_t unique = tokens_of_batch(batches[size_t(comm.rank())]).ids.size();
        EXPECT_LE(rows, unique * plan.embed_row);
        sent[size_t(comm.rank())] = plan.weights;
        blocks[size_t(comm.rank())] = plan.blocks;
      });
      // 9 bytes for 16 weights of NVFP4, 2 for those of an embedding, 4 for norms: three quarters
      // of all are sent by somebody to each.
      const TrainSettings s = exact_settings();
      uint64_t all = 0, gathered = 0;
      for (const ParamSpec& p : parameter_table(c)) {
        const auto n = uint64_t(p.numel());
        // Forward and backward, but for the last two, which are still there.
        if (mode == MemoryMode::gathered && p.is_linear() && p.layer >= 0) {
          gathered += n / 16 * 9 * (p.layer < 2 ? 2 : 1);
          continue;
        }
        if (p.slot == ParamSlot::embed) all += n * 2;
        if (!p.is_matrix()) all += n * 4;
        if (p.is_linear()) all += n / 16 * 9;
      }
      uint64_t total = 0;
      for (const uint64_t n : sent) total += n;
      EXPECT_EQ(total, 3 * all);
      EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), uint64_t(0)), 3 * gathered);
    }
  }
}

TEST(Shards, EveryElementHasOneOwnerAndChunksAreWhole) {
  TrainSettings s = exact_settings();
  for (const bool tied : {true, false}) {
    const Config c = config_of_chunks(tied, ToyFamily::qwen2);
    const ParamGroups g = make_param_groups(c, s);
    for (const int ranks : {1, 2, 3, 7, 64}) {
      for (const int64_t window : {int64_t(1), int64_t(300'000), int64_t(1) << 22}) {
        const Shards shards(g, c, ranks, window);
        std::vector<std::vector<uint8_t>> seen(g.table.size());
        for (size_t i = 0; i < seen.size(); ++i) seen[i].resize(size_t(g.table[i].numel()));
        for (int r = 0; r < ranks; ++r) {
          std::vector<ShardPiece> passed;
          for (int64_t l = c.L; l >= -1; --l) {
            for (int64_t k = 0; k < shards.windows(l); ++k) {
              int64_t together = 0;
              for (const ShardPiece& p : shards.window(r, l, k)) {
                EXPECT_EQ(layer_of(g.table[p.param], c), l);
                EXPECT_EQ(p.begin % kShardChunk, 0);
                EXPECT_TRUE((p.begin + p.count) % kShardChunk == 0 ||
                            p.begin + p.count == g.table[p.param].numel());
                together += p.count;
                for (int64_t e = p.begin; e < p.begin + p.count; ++e) ++seen[p.param][size_t(e)];
              }
              EXPECT_LE(together, std::max(kShardChunk, window / ranks));
            }
          }
          int64_t owned = 0;
          for (const ShardPiece& p : shards.owned(r)) owned += p.count;
          EXPECT_LE(owned, g.trained_parameters());
        }
        for (size_t i = 0; i < seen.size(); ++i) {
          const uint8_t want = g.trained[i];
          EXPECT_TRUE(std::ranges::all_of(seen[i], [&](uint8_t n) { return n == want; }))
              << g.table[i].name;
        }
      }
    }
  }
}

// As equal as chunks allow: a rank has at most a chunk for each layer more than its share.
TEST(Shards, SharesAreEqualButForChunks) {
  Config c = config_of_chunks(false, ToyFamily::qwen3);
  c.C = 512, c.F = 2048, c.V = 4000, c.L = 6;
  const ParamGroups g = make_param_groups(c, exact_settings());
  for (const int ranks : {2, 4, 8}) {
    const Shards shards(g, c, ranks, 1 << 22);
    for (int r = 0; r < ranks; ++r) {
      int64_t owned = 0;
      for (const ShardPiece& p : shards.owned(r)) owned += p.count;
      EXPECT_NEAR(double(owned), double(g.trained_parameters()) / ranks,
                  double(kShardChunk * (c.L + 2)));
    }
  }
}

TEST(MomentPart, PartsMakeUpTheWhole) {
  for (const MomentFormat format : {MomentFormat::f32, MomentFormat::bf16, MomentFormat::int8,
                                    MomentFormat::int8_linear, MomentFormat::nvfp4}) {
    const int64_t n = 3 * 256 + 77;
    std::vector<uint8_t> whole(moment_bytes(format, n));
    for (const auto& [begin, count] :
         {std::pair<int64_t, int64_t>{0, 256}, {256, 512}, {768, 77}}) {
      uint64_t in_part = 0;
      for (const MomentRange& r : moment_part(format, n, begin, count)) {
        in_part += r.bytes;
        for (size_t i = 0; i < r.bytes; ++i) ++whole[r.whole + i];
      }
      EXPECT_EQ(in_part, moment_bytes(format, count));
    }
    EXPECT_TRUE(std::ranges::all_of(whole, [](uint8_t x) { return x == 1; }));
    EXPECT_THROW(moment_part(format, n, 1, 256), InternalError);
    EXPECT_THROW(moment_part(format, n, 0, 255), InternalError);
    EXPECT_THROW(moment_part(format, n, 768, 256), InternalError);
  }
}

}  // namespace
}  // namespace nibble::test

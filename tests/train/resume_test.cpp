// SPDX-License-Identifier: MIT
// Checkpoints: a run killed in the middle of a save goes on as if nothing had happened, and files
// that do not belong to the run are refused.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>

#include "core/file.h"
#include "core/hash.h"
#include "core/sha256.h"
#include "formats/safetensors.h"
#include "support/damage.h"
#include "support/tested_backend.h"
#include "support/train_toy.h"
#include "train/checkpoint.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

Config resume_config() {
  Config c = toy_config();
  c.Hkv = 4;
  c.F = 128;
  return c;
}

TrainSettings resume_settings() {
  TrainSettings s;
  s.schedule.lr = 1e-3;
  s.seed = 11;
  set_capacity(s, 64, 8);
  return s;
}

// The bytes of a checkpoint with the checksum they ask for.
std::string with_checksum(std::string bytes) {
  const std::string before = std::string("\"") + kChecksumKey + "\":\"";
  const size_t at = bytes.find(before) + before.size();
  bytes.replace(at, 64, std::string(64, '0'));
  QuickHash hash;
  hash.update(bytes);
  bytes.replace(at, 64, hash.finish());
  return bytes;
}

// One process's part of a run, from what is in `checkpoints` on.
struct PartialRun {
  std::unique_ptr<Backend> backend = make_model_backend(1);
  std::unique_ptr<TensorSource> source;
  std::unique_ptr<TrainState> state;
  std::unique_ptr<Trainer> trainer;
  RunIdentity identity;
  fs::path checkpoints;

  PartialRun(const fs::path& weights, fs::path directory,
             const TrainSettings& s = resume_settings())
      : source(open_tensor_source(weights)), checkpoints(std::move(directory)) {
    state = std::make_unique<TrainState>(*backend, resume_config(), *source, s);
    trainer = std::make_unique<Trainer>(*state);
    identity = run_identity(resume_config(), s);
    identity[kInputFileKey] = sha256_file(weights);
    const auto found = list_checkpoints(checkpoints);
    if (!found.empty()) {
      trainer->progress = load_checkpoint(found.back().path, *state, identity).trainer;
    }
  }
  void steps(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const PackedBatch b =
          random_batch({9, 17}, resume_config().V, uint64_t(trainer->progress.step + 1));
      trainer->step(std::span(&b, 1));
    }
  }
  void save() {
    save_checkpoint(checkpoints, *state, {trainer->progress, uint64_t(trainer->progress.step)},
                    identity, 2);
  }
};

std::string file_bytes(const fs::path& p) { return read_text_file(p); }

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override { write_toy_weights(resume_config(), weights_); }
  TemporaryDirectory directory_{"checkpoints"};
  fs::path weights_ = directory_.path() / "model.safetensors";
  fs::path saved_ = directory_.path() / "saved";
};

extern "C" void kill_myself(int) { ::raise(SIGKILL); }

// 20 steps against 10 + kill -9 during the next save + resume + 10.
TEST_F(Checkpoints, KilledDuringASave) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    PartialRun run(weights_, saved_);
    run.steps(10);
    run.save();
    run.steps(4);
    // The next file may have half the size: the write that would exceed it raises a signal, and
    // its handler is a kill -9 at exactly that point.
    const auto size = fs::file_size(saved_ / checkpoint_name(10));
    std::signal(SIGXFSZ, kill_myself);
    const rlimit limit{size / 2, size / 2};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    run.save();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  // A torn file is there, under a name that is not a checkpoint's.
  EXPECT_EQ(std::distance(fs::directory_iterator(saved_), fs::directory_iterator{}), 2);
  ASSERT_EQ(list_checkpoints(saved_).size(), 1u);

  PartialRun resumed(weights_, saved_);
  EXPECT_EQ(resumed.trainer->progress.step, 10);
  resumed.steps(10);
  resumed.save();
  PartialRun whole(weights_, directory_.path() / "whole");
  whole.steps(20);
  whole.save();
  // The files hold every bit of a run, counters included.
  EXPECT_TRUE(file_bytes(saved_ / checkpoint_name(20)) ==
              file_bytes(directory_.path() / "whole" / checkpoint_name(20)));
  // The next save took the torn file away.
  EXPECT_EQ(std::distance(fs::directory_iterator(saved_), fs::directory_iterator{}), 2);
}

TEST_F(Checkpoints, OldOnesAreRemovedAfterTheNewOneIsThere) {
  PartialRun run(weights_, saved_);
  for (int i = 0; i < 4; ++i) run.steps(1), run.save();
  const auto found = list_checkpoints(saved_);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].step, 3);
  EXPECT_EQ(found[1].step, 4);
}

TEST_F(Checkpoints, AnotherRunIsRefusedWithEveryDifference) {
  {
    PartialRun run(weights_, saved_);
    run.steps(1);
    run.save();
  }
  TrainSettings s = resume_settings();
  s.schedule.lr = 2e-3;
  s.optimizer.moments = MomentFormat::f32;
  try {
    PartialRun other(weights_, saved_, s);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("lr: the checkpoint has 0.001, this run 0.002"), std::string::npos) << text;
    EXPECT_NE(text.find("optimizer-state-mode: the checkpoint has int8, this run fp32"),
              std::string::npos)
        << text;
  }
  const fs::path foreign = directory_.path() / "other.safetensors";
  write_toy_weights(resume_config(), foreign, 99);
  try {
    PartialRun other(foreign, saved_);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("input file"), std::string::npos) << e.what();
  }
}

// Whatever decides a step has a name of its own in a run's identity, and nothing else shows there.
TEST_F(Checkpoints, TheIdentityHasWhatDecidesAStep) {
  const auto identity = [&](const std::function<void(Config&, TrainSettings&)>& change) {
    Config c = resume_config();
    TrainSettings s = resume_settings();
    change(c, s);
    return run_identity(c, s);
  };
  const auto differs = [](const RunIdentity& a, const RunIdentity& b) {
    std::string names;
    RunIdentity all = a;
    all.insert(b.begin(), b.end());
    for (const auto& [name, value] : all) {
      if (!a.contains(name) || !b.contains(name) || a.at(name) != b.at(name)) names += name + ";";
    }
    return names;
  };
  const RunIdentity plain = identity([](Config&, TrainSettings&) {});
  const std::pair<const char*, std::function<void(Config&)>> of_config[] = {
      {"model;", [](Config& c) { c.F = 64; }},
      {"rms-norm-eps;", [](Config& c) { c.rms_eps = 1e-5; }},
      {"rope-theta;", [](Config& c) { c.rope.theta = 1e4; }},
      {"rope;", [](Config& c) { c.rope.kind = RopeKind::linear; }},
      {"heads;", [](Config& c) { c.qk_norm = false; }},
  };
  for (const auto& [names, change] : of_config) {
    EXPECT_EQ(differs(plain, identity([&](Config& c, TrainSettings&) { change(c); })), names);
  }
  using S = TrainSettings;
  const std::pair<const char*, std::function<void(S&)>> of_settings[] = {
      {"loss;", [](S& s) { s.loss = LossKind::scalar; }},
      {"head-recipe;", [](S& s) { s.head_recipe = Recipe::bf16; }},
      {"recipe;", [](S& s) { s.recipe = Recipe::bf16, s.head_recipe = Recipe::nvfp4; }},
      {"scale-rule;", [](S& s) { s.rule = ScaleRule::absmax; }},
      {"compute-dtype;", [](S& s) { s.compute = DType::bf16; }},
      {"master-dtype;", [](S& s) { s.master = DType::f32; }},
      {"grad-dtype;", [](S& s) { s.grad = DType::f32; }},
      {"memory-mode releases gradients;", [](S& s) { s.memory = MemoryMode::release; }},
      {"memory-mode releases gradients;remade NVFP4;", [](S& s) { s.memory = MemoryMode::remake; }},
      {"untie;", [](S& s) { s.untie = true; }},
      {"optimizer-state-mode;", [](S& s) { s.optimizer.moments = MomentFormat::f32; }},
      {"beta1;", [](S& s) { s.optimizer.beta1 = 0.8; }},
      {"beta2;", [](S& s) { s.optimizer.beta2 = 0.99; }},
      {"eps;", [](S& s) { s.optimizer.eps = 1e-6; }},
      {"weight-decay;", [](S& s) { s.optimizer.weight_decay = 0.1; }},
      {"decay-all;", [](S& s) { s.optimizer.decay_all = true; }},
      {"grad-clip;", [](S& s) { s.optimizer.grad_clip = 2; }},
      {"update-from;", [](S& s) { s.optimizer.from = UpdateFrom::quantised; }},
      {"master-rounding;", [](S& s) { s.optimizer.rounding = MasterRounding::nearest; }},
      {"lr;", [](S& s) { s.schedule.lr = 2; }},
      {"warmup-steps;", [](S& s) { s.schedule.warmup = 2; }},
      {"final-lr-share;lr-schedule;steps;", [](S& s) { s.schedule.shape = ScheduleShape::cosine; }},
      {"lr-scale;",
       [](S& s) {
         s.lr_scale = {{"norm", 2}, {"q_proj", 0}};
       }},
      {"train-last-layers;", [](S& s) { s.train_last_layers = 1; }},
      {"seed;", [](S& s) { s.seed = 12; }},
      {"", [](S& s) { s.schedule.steps = 9; }},
  };
  for (const auto& [names, change] : of_settings) {
    EXPECT_EQ(differs(plain, identity([&](Config&, S& s) { change(s); })), names);
  }
  // Every number of a stretched rotation.
  const auto stretched = [&](const std::function<void(RopeSpec&)>& change) {
    return identity([&](Config& c, TrainSettings&) {
      c.rope.kind = RopeKind::yarn;
      change(c.rope);
    });
  };
  const RunIdentity usual = stretched([](RopeSpec&) {});
  for (const auto number :
       {&RopeSpec::factor, &RopeSpec::original_positions, &RopeSpec::low_freq_factor,
        &RopeSpec::high_freq_factor, &RopeSpec::beta_fast, &RopeSpec::beta_slow,
        &RopeSpec::attention_factor}) {
    EXPECT_EQ(differs(usual, stretched([&](RopeSpec& r) { r.*number += 8; })), "rope;");
  }
  EXPECT_EQ(differs(usual, stretched([](RopeSpec& r) { r.truncate = false; })), "rope;");
}

// A bit anywhere: in the length, the header, the checksum itself, the payload.
TEST_F(Checkpoints, EveryFlippedBitIsNoticed) {
  PartialRun run(weights_, saved_);
  run.steps(1);
  run.save();
  const fs::path file = saved_ / checkpoint_name(1);
  const std::string good = file_bytes(file);
  ASSERT_EQ(with_checksum(good), good) << "the test knows how it is made";
  for (size_t i = 0; i < 200; ++i) {
    const size_t at = i < 100 ? i * 13 : (good.size() - 1) * (i - 100) / 99;
    std::string bad = good;
    bad[at] = char(bad[at] ^ (1 << (i % 8)));
    replace_file(file, bad);
    EXPECT_THROW(load_checkpoint(file, *run.state, run.identity), FormatError) << at;
  }
  replace_file(file, good);
  EXPECT_NO_THROW(load_checkpoint(file, *run.state, run.identity));
}

// Numbers no run can come to, in a file whose checksum is right.
TEST_F(Checkpoints, FieldsOutOfRangeAreRefused) {
  PartialRun run(weights_, saved_);
  run.steps(2);
  run.save();
  const fs::path file = saved_ / checkpoint_name(2);
  const std::string good = file_bytes(file);
  const auto with = [&](const std::string& key, const std::string& value) {
    std::string text = good;
    const size_t begin = text.find("\\\"" + key + "\\\":") + key.size() + 5;
    const size_t end = text.find_first_of(",}", begin);
    text.replace(begin, end - begin, value);
    // The header has another length now: the padding takes it up, eight bytes at a time.
    uint64_t header = 0;
    std::memcpy(&header, good.data(), 8);
    const auto longer = int64_t(text.size()) - int64_t(good.size());
    header = uint64_t(int64_t(header) + longer);
    std::memcpy(text.data(), &header, 8);
    return with_checksum(text);
  };
  replace_file(file, with("step", "2"));
  EXPECT_NO_THROW(load_checkpoint(file, *run.state, run.identity)) << "the way of writing is right";
  const std::pair<const char*, const char*> wrong[] = {
      {"step", "-9223372036854775808"},
      {"step", "-1"},
      {"step", "1e300"},
      {"step", "9223372036854775807"},
      {"step", "true"},
      {"updates", "3"},
      {"updates", "-1"},
      {"skipped", "99"},
      {"micro_batches", "-5"},
      {"good_steps", "7"},
      {"data_position", "-1"},
      {"data_position", "18446744073709551615"},
      {"loss_scale", "\\\"0x0p+0\\\""},
      {"loss_scale", "\\\"-0x1p+3\\\""},
      {"loss_scale", "\\\"inf\\\""},
      {"loss_scale", "\\\"nan\\\""},
      {"previous_norm", "\\\"nan\\\""},
      {"previous_norm", "\\\"-0x1p+0\\\""},
      {"lr_factor", "\\\"0x1p+1\\\""},
      {"lr_factor", "\\\"0x0p+0\\\""},
  };
  for (const auto& [key, value] : wrong) {
    replace_file(file, with(key, value));
    EXPECT_THROW(load_checkpoint(file, *run.state, run.identity), FormatError)
        << key << " " << value;
  }
}

TEST_F(Checkpoints, DamagedFilesAreRefused) {
  {
    PartialRun run(weights_, saved_);
    run.steps(1);
    run.save();
  }
  const fs::path file = saved_ / checkpoint_name(1);
  const std::string good = file_bytes(file);
  const auto expect_refused = [&](const std::string& bytes, const char* what) {
    replace_file(file, bytes);
    EXPECT_THROW(PartialRun(weights_, saved_), Error) << what;
  };
  for (const size_t length :
       {size_t(0), size_t(7), size_t(100), good.size() / 2, good.size() - 1}) {
    expect_refused(good.substr(0, length), "truncated");
  }
  std::string other = good;
  other.replace(other.find("\\\"version\\\":2"), 13, "\\\"version\\\":7");
  expect_refused(with_checksum(other), "another version");
  other = good;
  other.replace(other.find("\\\"version\\\":2"), 13, "\\\"version\\\":1");
  replace_file(file, other);
  EXPECT_THROW(PartialRun(weights_, saved_), UsageError) << "an earlier version's is not damaged";
  other = good;
  other.replace(other.find("nibble_run"), 10, "nibble_ran");
  expect_refused(other, "not ours");
  other = good;
  other.replace(other.find("loss_scale\\\":\\\"0x1"), 18, "loss_scale\\\":\\\"zz1");
  expect_refused(with_checksum(other), "a number that is none");
  // A model file is not a checkpoint.
  replace_file(file, file_bytes(weights_));
  EXPECT_THROW(PartialRun(weights_, saved_), FormatError);
  replace_file(file, good);
  EXPECT_NO_THROW(PartialRun(weights_, saved_));
}

// A full disk (here: a limit on file sizes) is an error, and the older checkpoint is still there.
TEST_F(Checkpoints, FullDisk) {
  PartialRun run(weights_, saved_);
  run.steps(1);
  run.save();
  run.steps(1);
  struct Limit {
    rlimit before{};
    explicit Limit(rlim_t bytes) {
      std::signal(SIGXFSZ, SIG_IGN);
      ::getrlimit(RLIMIT_FSIZE, &before);
      const rlimit now{bytes, before.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &now);
    }
    ~Limit() {
      ::setrlimit(RLIMIT_FSIZE, &before);
      std::signal(SIGXFSZ, SIG_DFL);
    }
  };
  {
    const Limit limit(fs::file_size(saved_ / checkpoint_name(1)) / 2);
    EXPECT_THROW(run.save(), FormatError);
  }
  ASSERT_EQ(list_checkpoints(saved_).size(), 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(saved_), fs::directory_iterator{}), 1);
  run.save();
  EXPECT_EQ(list_checkpoints(saved_).size(), 2u);
}

}  // namespace
}  // namespace nibble::test

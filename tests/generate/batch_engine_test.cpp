// SPDX-License-Identifier: MIT
// Decoding steps, recorded or not, equal feeding and choosing token by token, bit for bit; several
// sequences in one step equal as many engines.
#include <gtest/gtest.h>

#include <cstring>

#include "generate/engine.h"
#include "support/backends.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

struct StepCase {
  std::string name;
  BackendCase backend;
  DType cache;
  Config config = toy_config();
};

std::vector<StepCase> step_cases() {
  const auto backends = backend_cases();
  BackendCase half = backends[1];
  half.compute = DType::bf16;
  return {{"reference", backends[0], DType::f64},
          {"tested", backends[1], DType::f32},
          {"tested_f8_cache", backends[1], DType::f8_e4m3},
          {"tested_bf16", half, DType::bf16},
          {"tested_qwen2", backends[1], DType::f32, toy_qwen2_config()},
          {"tested_qwen2_bf16", half, DType::bf16, toy_qwen2_config()},
          {"tested_llama_bf16", half, DType::bf16, toy_llama_config()}};
}

SampleOptions drawn() {
  SampleOptions o;
  o.temperature = 0.8;
  o.top_k = 20;
  o.top_p = 0.9;
  o.seed = 7;
  return o;
}
SampleOptions with_penalty() {
  SampleOptions o = drawn();
  o.repetition_penalty = 1.3;
  return o;
}

class StepEngine : public testing::TestWithParam<StepCase> {
 protected:
  void SetUp() override {
    backend_ = GetParam().backend.make();
    LoadOptions load;
    load.dtype = GetParam().backend.weights;
    load.recipe = Recipe::nvfp4;
    toy_ = load_toy(*backend_, GetParam().config, load);
  }
  EngineOptions options() const {
    const StepCase& p = GetParam();
    return {256, 0, p.backend.compute, p.backend.stat, p.cache, Activations::none};
  }
  std::vector<int32_t> prompt(int64_t n, uint64_t seed) const {
    return random_tokens(n, toy_.model.config.V, seed);
  }

  std::unique_ptr<Backend> backend_;
  ToyModel toy_;
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_P(StepEngine, StepsEqualFeedingAndChoosing) {
  Engine eager(*backend_, toy_.model, options()), recorded(*backend_, toy_.model, options());
  eager.feed(prompt(11, 1));
  recorded.feed(prompt(11, 1));
  int32_t a = eager.sample({}, 0), b = recorded.sample({}, 0);
  ASSERT_EQ(a, b);
  uint64_t draw = 1;
  // Each kind of choice several times in a row and again later: a recording is made at the second.
  for (const SampleOptions& o : {SampleOptions{}, drawn(), with_penalty(), SampleOptions{}}) {
    for (int i = 0; i < 6; ++i, ++draw) {
      eager.feed(std::span(&a, 1));
      a = eager.sample(o, draw);
      b = recorded.step(b, o, draw);
      ASSERT_EQ(a, b) << "draw " << draw;
    }
    // A prompt longer than any before moves the activations of prompts.
    const auto turn = prompt(15 + int64_t(draw), draw);
    eager.feed(turn);
    recorded.feed(turn);
    a = eager.sample(o, draw);
    b = recorded.sample(o, draw);
    ASSERT_EQ(a, b);
  }
  EXPECT_EQ(eager.tokens(), recorded.tokens());
}

TEST_P(StepEngine, LogitsOfAStepAreThoseOfAFeed) {
  Engine eager(*backend_, toy_.model, options()), recorded(*backend_, toy_.model, options());
  eager.feed(prompt(9, 2));
  recorded.feed(prompt(9, 2));
  int32_t id = eager.sample({}, 0);
  for (int i = 0; i < 8; ++i) {
    const auto want = eager.extend(std::span(&id, 1));
    const int32_t next = recorded.step(id, {}, 0);
    EXPECT_TRUE(same_bits(recorded.logits(), want)) << i;
    id = eager.sample({}, 0);
    ASSERT_EQ(next, id);
  }
}

// In fp32 a row's result does not depend on the other rows; with 16-bit activations a backend may
// choose its kernel by the number of rows, and says so.
TEST_P(StepEngine, ABatchEqualsSeparateEngines) {
  if (!backend_->traits().batch_invariant(GetParam().backend.compute)) {
    GTEST_SKIP() << "rows are independent in fp32";
  }
  constexpr int64_t kSequences = 4;
  BatchEngine batch(*backend_, toy_.model, options(), kSequences);
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<DecodeStep> steps;
  const SampleOptions kinds[kSequences] = {{}, drawn(), {}, with_penalty()};
  for (int64_t s = 0; s < kSequences; ++s) {
    engines.push_back(std::make_unique<Engine>(*backend_, toy_.model, options()));
    const auto tokens = prompt(5 + 7 * s, 20 + uint64_t(s));
    engines.back()->feed(tokens);
    batch.feed(s, tokens);
    DecodeStep step{s, batch.sample(kinds[s], 0), kinds[s], 0};
    step.sample.seed = uint64_t(100 + s);
    ASSERT_EQ(step.id, engines.back()->sample(kinds[s], 0));
    steps.push_back(step);
  }
  const size_t V = size_t(toy_.model.config.V);
  for (uint64_t draw = 1; draw <= 24; ++draw) {
    // Sequences leave and come back, in any order.
    std::vector<DecodeStep> now;
    for (size_t i = 0; i < steps.size(); ++i) {
      const size_t s = (i + draw) % steps.size();
      if (draw % 6 != s + 1) now.push_back(steps[s]);
    }
    for (DecodeStep& d : now) d.draw = draw;
    const auto ids = batch.step(now);
    const auto logits = batch.logits();
    for (size_t i = 0; i < now.size(); ++i) {
      Engine& e = *engines[size_t(now[i].sequence)];
      ASSERT_EQ(ids[i], e.step(now[i].id, now[i].sample, draw)) << "sequence " << now[i].sequence;
      EXPECT_TRUE(same_bits(std::span(logits).subspan(i * V, V), e.logits()));
      steps[size_t(now[i].sequence)].id = ids[i];
    }
  }
  for (int64_t s = 0; s < kSequences; ++s) EXPECT_EQ(batch.tokens(s), engines[size_t(s)]->tokens());
}

std::string case_name(const testing::TestParamInfo<StepCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, StepEngine, testing::ValuesIn(step_cases()), case_name);

TEST(BatchEngine, RefusesWhatDoesNotFit) {
  RefBackend<double> backend;
  ToyModel toy =
      load_toy(backend, toy_config(), {.recipe = {}, .head_recipe = {}, .dtype = DType::f64});
  const EngineOptions o{8, 0, DType::f64, DType::f64, DType::f64, Activations::none};
  EXPECT_THROW(BatchEngine(backend, toy.model, o, 0), UsageError);
  EXPECT_THROW(BatchEngine(backend, toy.model, o, int64_t(1) << 31), UsageError);
  BatchEngine e(backend, toy.model, o, 2);
  EXPECT_THROW(e.sample({}, 0), InternalError);
  e.feed(0, random_tokens(8, 160, 1));
  e.feed(1, random_tokens(3, 160, 1));
  EXPECT_EQ(e.room(0), 0);
  const DecodeStep full{0, 1, {}, 0}, fits{1, 1, {}, 0};
  EXPECT_THROW(e.step(std::vector{fits, full}), UsageError);
  EXPECT_THROW(e.step(std::vector{fits, fits}), InternalError);
  EXPECT_THROW(e.step({}), InternalError);
  DecodeStep bad = fits;
  bad.sample.top_p = 0;
  EXPECT_THROW(e.step(std::vector{bad}), UsageError);
  bad = fits;
  bad.id = 160;
  EXPECT_THROW(e.step(std::vector{bad}), UsageError);
  EXPECT_EQ(e.length(1), 3);  // a refused call leaves nothing behind
  e.step(std::vector{fits});
  EXPECT_EQ(e.length(1), 4);
}

}  // namespace
}  // namespace nibble::test

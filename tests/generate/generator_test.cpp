// SPDX-License-Identifier: MIT
// The generation loop and its stop rules on a real engine; the rules alone are in reply_test.cpp.
#include "generate/generator.h"

#include <gtest/gtest.h>

#include "support/ref_backend.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

class Generator : public testing::Test {
 protected:
  Generator()
      : toy_(load_toy(backend_, toy_config(),
                      {.recipe = {}, .head_recipe = {}, .dtype = DType::f64})) {}
  Engine make(int64_t context = 64) {
    return Engine(backend_, toy_.model,
                  {context, 0, DType::f64, DType::f64, DType::f64, Activations::none});
  }
  GenerateOptions options(int64_t max_tokens) {
    GenerateOptions o;
    o.max_tokens = max_tokens;
    o.check_collapse = false;
    return o;
  }
  RefBackend<double> backend_;
  ToyModel toy_;
  std::vector<int32_t> prompt_ = random_tokens(7, 160, 2);
};

TEST_F(Generator, StopTokenEndsAndIsNotEmitted) {
  Engine a = make(), b = make();
  const auto all = generate(a, prompt_, options(12));
  EXPECT_EQ(all.reason, FinishReason::length);
  ASSERT_EQ(all.ids.size(), 12u);
  GenerateOptions o = options(12);
  const size_t at = 5;
  o.stop_ids = {all.ids[at]};
  const auto first =
      size_t(std::find(all.ids.begin(), all.ids.end(), all.ids[at]) - all.ids.begin());
  const auto stopped = generate(b, prompt_, o);
  EXPECT_EQ(stopped.reason, FinishReason::stop);
  EXPECT_EQ(stopped.ids,
            std::vector<int32_t>(all.ids.begin(), all.ids.begin() + std::ptrdiff_t(first)));
}

TEST_F(Generator, ContextFullEnds) {
  Engine e = make(10);
  const auto r = generate(e, prompt_, options(100));
  EXPECT_EQ(r.reason, FinishReason::context_full);
  EXPECT_EQ(r.ids.size(), 4u);  // three fill the cache, the fourth is known but cannot be fed
  EXPECT_EQ(e.room(), 0);
}

TEST_F(Generator, CallbackCancels) {
  Engine e = make();
  int seen = 0;
  const auto r = generate(e, prompt_, options(50), [&](int32_t) { return ++seen < 3; });
  EXPECT_EQ(r.reason, FinishReason::cancelled);
  EXPECT_EQ(r.ids.size(), 3u);
}

TEST_F(Generator, TimeoutEnds) {
  Engine e = make();
  GenerateOptions o = options(50);
  o.timeout_s = 1e-9;
  const auto r = generate(e, prompt_, o);
  EXPECT_EQ(r.reason, FinishReason::timeout);
  EXPECT_EQ(r.ids.size(), 1u);
}

// Time can run out while the prompt is still being fed; the engine then is as it was before.
TEST_F(Generator, TimeoutDuringThePrompt) {
  Engine e(backend_, toy_.model, {64, 2, DType::f64, DType::f64, DType::f64, Activations::none});
  e.extend(std::vector<int32_t>{1, 2, 3});
  GenerateOptions o = options(50);
  o.timeout_s = 1e-9;
  const auto r = generate(e, prompt_, o);
  EXPECT_EQ(r.reason, FinishReason::timeout);
  EXPECT_TRUE(r.ids.empty());
  EXPECT_EQ(e.tokens(), (std::vector<int32_t>{1, 2, 3}));
}

TEST_F(Generator, NanLogitsAreReported) {
  toy_.model.weights.final_norm.as<double>()[3] = std::numeric_limits<double>::quiet_NaN();
  Engine e = make();
  const auto r = generate(e, prompt_, options(5));
  EXPECT_EQ(r.reason, FinishReason::not_finite);
  EXPECT_TRUE(r.ids.empty());
  EXPECT_TRUE(is_unhealthy(r.reason));
}

// A zero final norm makes all logits equal: greedy then says token 0 for ever.
TEST_F(Generator, CollapseToTokenZeroIsReported) {
  for (int i = 0; i < 64; ++i) toy_.model.weights.final_norm.as<double>()[i] = 0;
  Engine a = make(), b = make();
  GenerateOptions o = options(20);
  o.check_collapse = true;
  const auto r = generate(a, prompt_, o);
  EXPECT_EQ(r.reason, FinishReason::collapse);
  EXPECT_EQ(r.ids, std::vector<int32_t>(4, 0));
  o.check_collapse = false;
  o.stop_on_repetition = true;
  const auto s = generate(b, prompt_, o);
  EXPECT_EQ(s.reason, FinishReason::repetition);
  EXPECT_EQ(s.ids.size(), 16u);
}

TEST_F(Generator, TimingCountsTokens) {
  Engine e = make();
  const auto r = generate(e, prompt_, options(6));
  EXPECT_EQ(r.timing.prompt_tokens, 7);
  EXPECT_EQ(r.timing.generated_tokens, 6);
  EXPECT_GT(r.timing.prefill_s, 0);
}

}  // namespace
}  // namespace nibble::test

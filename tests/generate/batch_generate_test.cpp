// SPDX-License-Identifier: MIT
// Replies of a batch: those of generate() one by one, whatever the number of places, and the rules
// that end them.
#include "generate/batch_generate.h"

#include <gtest/gtest.h>

#include "support/ref_backend.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

class BatchGenerate : public testing::Test {
 protected:
  BatchGenerate()
      : toy_(load_toy(backend_, toy_config(),
                      {.recipe = {}, .head_recipe = {}, .dtype = DType::f64})) {}
  EngineOptions options(int64_t context = 64) const {
    return {context, 0, DType::f64, DType::f64, DType::f64, Activations::none};
  }
  static std::vector<BatchPrompt> prompts(size_t count, int64_t max_tokens) {
    std::vector<BatchPrompt> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back({random_tokens(5 + int64_t(i) % 3, 160, 30 + i), max_tokens, false});
    }
    return all;
  }
  // The final norm of every value the same: 0 makes all logits equal, so that greedy says token 0
  // for ever.
  void set_final_norm(double value) {
    for (int64_t i = 0; i < toy_.model.config.C; ++i) {
      toy_.model.weights.final_norm.as<double>()[i] = value;
    }
  }
  GenerateResult alone(const BatchPrompt& p, const BatchGenerateOptions& o, uint64_t number) {
    Engine engine(backend_, toy_.model, options());
    GenerateOptions g;
    g.max_tokens = p.max_tokens;
    g.stop_ids = o.stop_ids;
    g.stop_on_repetition = p.stop_on_repetition;
    g.sample = o.sample;
    g.sample.seed += number;
    return generate(engine, p.ids, g);
  }

  RefBackend<double> backend_;
  ToyModel toy_;
};

TEST_F(BatchGenerate, RepliesAreThoseOfGenerate) {
  BatchGenerateOptions o;
  o.sample.temperature = 0.8;
  o.sample.repetition_penalty = 1.2;
  o.sample.seed = 5;
  auto asked = prompts(7, 12);
  asked[2].max_tokens = 1;  // ends with its first token
  asked[4].max_tokens = 3;
  o.stop_ids = {alone(asked[5], o, 5).ids[4]};
  std::vector<GenerateResult> want;
  for (size_t i = 0; i < asked.size(); ++i) want.push_back(alone(asked[i], o, i));
  EXPECT_EQ(want[5].reason, FinishReason::stop);
  for (const int64_t places : {1, 3, 9}) {
    BatchEngine engine(backend_, toy_.model, options(), places);
    int64_t heard = 0;
    const auto replies = generate_batch(engine, asked, o, [&](int64_t done) {
      EXPECT_EQ(done, ++heard);
      return true;
    });
    EXPECT_EQ(heard, 7);
    ASSERT_EQ(replies.size(), asked.size());
    for (size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(replies[i].ids, want[i].ids) << "prompt " << i << ", " << places << " places";
      EXPECT_EQ(replies[i].reason, want[i].reason);
    }
    for (int64_t s = 0; s < places; ++s) EXPECT_EQ(engine.length(s), 0);
  }
}

TEST_F(BatchGenerate, CollapseToTokenZeroEndsAReply) {
  set_final_norm(0);
  BatchEngine engine(backend_, toy_.model, options(), 2);
  for (const BatchReply& r : generate_batch(engine, prompts(3, 20), {})) {
    EXPECT_EQ(r.reason, FinishReason::collapse);
    EXPECT_EQ(r.ids, std::vector<int32_t>(4, 0));
  }
}

// Three zeros are no collapse, nor is one that the length ends before.
TEST_F(BatchGenerate, FewerZerosAreNoCollapse) {
  set_final_norm(0);
  BatchEngine engine(backend_, toy_.model, options(), 2);
  const BatchReply r = generate_batch(engine, prompts(1, 3), {}).front();
  EXPECT_EQ(r.reason, FinishReason::length);
  EXPECT_EQ(r.ids, std::vector<int32_t>(3, 0));
}

TEST_F(BatchGenerate, LogitsThatAreNotFiniteEndAReply) {
  set_final_norm(std::numeric_limits<double>::quiet_NaN());
  BatchEngine engine(backend_, toy_.model, options(), 2);
  for (const BatchReply& r : generate_batch(engine, prompts(3, 20), {})) {
    EXPECT_EQ(r.reason, FinishReason::not_finite);
    EXPECT_TRUE(r.ids.empty());
  }
}

// A model that looks at one number of the hidden state has two things to say, and runs into a
// circle; only who asks for it is stopped there.
TEST_F(BatchGenerate, RepetitionEndsAReplyThatAskedForIt) {
  set_final_norm(0);
  toy_.model.weights.final_norm.as<double>()[5] = 1;
  auto asked = prompts(2, 300);
  asked[0].ids = asked[1].ids;
  asked[0].stop_on_repetition = true;
  BatchEngine engine(backend_, toy_.model, options(400), 2);
  const auto replies = generate_batch(engine, asked, {});
  ASSERT_EQ(replies[1].reason, FinishReason::length);
  EXPECT_EQ(replies[0].reason, FinishReason::repetition);
  const auto n = std::ptrdiff_t(replies[0].ids.size());
  EXPECT_LT(n, 300);
  EXPECT_TRUE(tail_repeats(replies[0].ids, 32, 4));
  EXPECT_FALSE(tail_repeats(std::span(replies[0].ids).first(size_t(n - 1)), 32, 4));
  EXPECT_TRUE(std::equal(replies[0].ids.begin(), replies[0].ids.end(), replies[1].ids.begin()));
}

TEST_F(BatchGenerate, AFullContextEndsAReply) {
  BatchEngine engine(backend_, toy_.model, options(8), 2);
  const auto replies = generate_batch(engine, prompts(3, 100), {});
  for (size_t i = 0; i < replies.size(); ++i) {
    EXPECT_EQ(replies[i].reason, FinishReason::context_full);
    // The last is known but cannot be fed.
    EXPECT_EQ(int64_t(replies[i].ids.size()), 8 - (5 + int64_t(i) % 3) + 1);
  }
}

TEST_F(BatchGenerate, CancellingKeepsWhatIsDone) {
  auto asked = prompts(5, 6);
  asked[1].max_tokens = 2;
  BatchEngine engine(backend_, toy_.model, options(), 2);
  const auto replies = generate_batch(engine, asked, {}, [](int64_t) { return false; });
  EXPECT_EQ(replies[1].reason, FinishReason::length);
  EXPECT_EQ(replies[1].ids.size(), 2u);
  for (const size_t i : {0, 2, 3, 4}) EXPECT_EQ(replies[i].reason, FinishReason::cancelled) << i;
  for (int64_t s = 0; s < 2; ++s) EXPECT_EQ(engine.length(s), 0);
}

}  // namespace
}  // namespace nibble::test

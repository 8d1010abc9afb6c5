// SPDX-License-Identifier: MIT
// Where a reply ends, with a backend that chooses what a test wrote down: generate() and a batch
// end it at the same token for the same reason.
#include <gtest/gtest.h>

#include "backend/forwarding_backend.h"
#include "generate/batch_generate.h"
#include "support/ref_backend.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

using Ids = std::vector<int32_t>;

class Scripted final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  Ids script;
  size_t at = 0;

 private:
  void do_sample(Tensor out, Tensor, Tensor, Tensor, Choice) override {
    const int32_t id = at < script.size() ? script[at] : int32_t(100 + at % 50);
    ++at;
    inner_.upload(out, &id);
  }
};

// A phrase of `period` different tokens, so many times.
Ids phrases(int32_t period, int times) {
  Ids ids;
  for (int t = 0; t < times; ++t) {
    for (int32_t i = 0; i < period; ++i) ids.push_back(1 + i);
  }
  return ids;
}

class StopRules : public testing::Test {
 protected:
  StopRules()
      : toy_(load_toy(reference_, toy_config(),
                      {.recipe = {}, .head_recipe = {}, .dtype = DType::f64})) {
    options_.max_tokens = 400;
    options_.stop_on_repetition = true;
  }
  EngineOptions engine_options() const {
    return {500, 0, DType::f64, DType::f64, DType::f64, Activations::none};
  }
  // The reason and the number of tokens of a reply that would say this.
  std::pair<FinishReason, size_t> end_of(const Ids& script) {
    const Ids prompt = {3, 4};
    be_.script = script;
    be_.at = 0;
    Engine engine(be_, toy_.model, engine_options());
    const GenerateResult alone = generate(engine, prompt, options_);
    be_.at = 0;
    BatchEngine batch(be_, toy_.model, engine_options(), 1);
    BatchGenerateOptions o;
    o.stop_ids = options_.stop_ids;
    const std::vector<BatchPrompt> prompts = {
        {prompt, options_.max_tokens, options_.stop_on_repetition}};
    const BatchReply reply = generate_batch(batch, prompts, o).front();
    EXPECT_EQ(reply.reason, alone.reason);
    EXPECT_EQ(reply.ids, alone.ids);
    return {alone.reason, alone.ids.size()};
  }
  static std::pair<FinishReason, size_t> ends(FinishReason reason, size_t tokens) {
    return {reason, tokens};
  }

  RefBackend<double> reference_;
  Scripted be_{reference_};
  ToyModel toy_;
  GenerateOptions options_;
};

TEST_F(StopRules, FourPhrasesOfUpTo32TokensAreARepetition) {
  for (const int32_t period : {2, 31, 32}) {
    EXPECT_EQ(end_of(phrases(period, 5)), ends(FinishReason::repetition, size_t(4 * period)));
  }
  options_.max_tokens = 180;
  EXPECT_EQ(end_of(phrases(33, 5)), ends(FinishReason::length, 180));
  EXPECT_EQ(end_of(phrases(32, 3)), ends(FinishReason::length, 180));
  options_.stop_on_repetition = false;
  EXPECT_EQ(end_of(phrases(32, 5)), ends(FinishReason::length, 180));
}

TEST_F(StopRules, OneTokenMaySayItselfFifteenTimes) {
  EXPECT_EQ(end_of(Ids(20, 7)), ends(FinishReason::repetition, 16));
  options_.max_tokens = 30;
  EXPECT_EQ(end_of(Ids(15, 7)), ends(FinishReason::length, 30));
}

TEST_F(StopRules, FourZerosInARowAreACollapse) {
  options_.max_tokens = 12;
  EXPECT_EQ(end_of({5, 0, 0, 0, 0, 6}), ends(FinishReason::collapse, 5));
  EXPECT_EQ(end_of({0, 0, 0, 6, 0, 0, 0, 7}), ends(FinishReason::length, 12));
  EXPECT_EQ(end_of({0, 0, 7, 0, 0, 8}), ends(FinishReason::length, 12));
}

TEST_F(StopRules, TheFirstReasonInOrderIsGiven) {
  options_.max_tokens = 4;
  EXPECT_EQ(end_of({0, 0, 0, 0}), ends(FinishReason::collapse, 4));  // and the length
  options_.stop_ids = {9, 0};
  EXPECT_EQ(end_of({5, 0, 0, 0, 0}), ends(FinishReason::stop, 1));
  EXPECT_EQ(end_of({5, 6, 7, 9}), ends(FinishReason::stop, 3));
  EXPECT_EQ(end_of({5, 6, 7, 8, 9}), ends(FinishReason::length, 4));
  EXPECT_EQ(end_of({5, -1, 9}), ends(FinishReason::not_finite, 1));
  options_.max_tokens = 16;
  EXPECT_EQ(end_of(Ids(16, 7)), ends(FinishReason::repetition, 16));
}

TEST(FinishReasons, HaveTheNamesOfTheDocumentation) {
  const std::pair<FinishReason, const char*> names[] = {
      {FinishReason::stop, "stop"},
      {FinishReason::length, "length"},
      {FinishReason::context_full, "context-full"},
      {FinishReason::timeout, "timeout"},
      {FinishReason::cancelled, "cancelled"},
      {FinishReason::repetition, "repetition"},
      {FinishReason::collapse, "collapse"},
      {FinishReason::not_finite, "not-finite"}};
  for (const auto& [reason, name] : names) {
    EXPECT_EQ(finish_reason_name(reason), name);
    EXPECT_EQ(is_unhealthy(reason),
              reason == FinishReason::collapse || reason == FinishReason::not_finite);
  }
}

// The n-th token is drawn with the n-th number whether or not the cache is used.
TEST(Replay, DrawsTheSame) {
  RefBackend<double> backend;
  const ToyModel toy =
      load_toy(backend, toy_config(), {.recipe = {}, .head_recipe = {}, .dtype = DType::f64});
  GenerateOptions o;
  o.max_tokens = 12;
  o.sample.temperature = 1.5;
  o.sample.seed = 3;
  Ids replies[2];
  for (const bool replay : {false, true}) {
    Engine engine(backend, toy.model,
                  {64, 0, DType::f64, DType::f64, DType::f64, Activations::none});
    o.replay = replay;
    replies[replay] = generate(engine, random_tokens(7, 160, 2), o).ids;
  }
  EXPECT_EQ(replies[1], replies[0]);
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// The repetition penalty looks at the tokens a sequence has now, not at those it once had.
#include <gtest/gtest.h>

#include "generate/batch_engine.h"
#include "support/ref_backend.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

class PenaltyHistory : public testing::Test {
 protected:
  static constexpr int64_t kVocabulary = 160, kFirst = 24, kKept = 4;

  PenaltyHistory()
      : toy_(load_toy(backend_, toy_config(),
                      {.recipe = {}, .head_recipe = {}, .dtype = DType::f64})) {
    penalty_.repetition_penalty = 100;  // nothing that was said is chosen again
  }
  BatchEngine make() {
    return BatchEngine(backend_, toy_.model,
                       {96, 0, DType::f64, DType::f64, DType::f64, Activations::none}, 2);
  }
  // Of the tokens that have not been said, the likeliest after `more`.
  int32_t choice(BatchEngine& e, int64_t sequence, std::span<const int32_t> more) {
    e.feed(sequence, more);
    return e.sample(penalty_, 0);
  }

  RefBackend<double> backend_;
  ToyModel toy_;
  SampleOptions penalty_;
};

// Shorter than before, as long, longer: each time the choice is that of an engine that never held
// the tokens that were taken back.
TEST_F(PenaltyHistory, TruncatedTokensAreForgotten) {
  int64_t mattered = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    for (const int64_t more : {kFirst - kKept - 3, kFirst - kKept, kFirst - kKept + 3}) {
      const auto first = random_tokens(kFirst, kVocabulary, 500 + seed);
      const auto then = random_tokens(more, kVocabulary, 700 + seed);
      BatchEngine used = make(), fresh = make();
      choice(used, 1, first);
      used.truncate(1, kKept);
      fresh.feed(1, std::span(first).first(size_t(kKept)));
      const int32_t want = choice(fresh, 1, then);
      EXPECT_EQ(choice(used, 1, then), want) << "seed " << seed << ", " << more << " new tokens";
      // A step looks at the same history.
      const DecodeStep step{1, want, penalty_, 1};
      EXPECT_EQ(used.step({&step, 1})[0], fresh.step({&step, 1})[0]);
      mattered += fresh.sample({}, 0) != fresh.sample(penalty_, 0);
    }
  }
  EXPECT_GT(mattered, 0);  // or nothing was shown
}

// Of two sequences each has its own.
TEST_F(PenaltyHistory, NeighboursAreNotPenalised) {
  BatchEngine both = make(), alone = make();
  const auto own = random_tokens(9, kVocabulary, 1);
  std::vector<int32_t> others;
  for (int32_t id = 0; id < 90; ++id) others.push_back(id);
  choice(both, 0, others);
  EXPECT_EQ(choice(both, 1, own), choice(alone, 1, own));
}

}  // namespace
}  // namespace nibble::test

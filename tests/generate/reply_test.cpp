// SPDX-License-Identifier: MIT
// When a reply ends, and which rule wins where two apply: no model, no engine.
#include "generate/reply.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace nibble::test {
namespace {

using Ids = std::vector<int32_t>;
constexpr int64_t kRoom = 1000;

// A reply whose clock stands still unless it is moved.
class ReplyRules : public testing::Test {
 protected:
  ReplyProgress make() {
    return ReplyProgress(
        options_,
        [this](int32_t id) {
          heard_.push_back(id);
          return !cancels_;
        },
        [this] { return now_; });
  }
  void pass_seconds(double s) {
    now_ += std::chrono::duration_cast<ReplyProgress::Clock::duration>(
        std::chrono::duration<double>(s));
  }
  // Feeds all but the last, which must not end the reply, and returns what the last one does.
  static std::optional<FinishReason> take_all(ReplyProgress& reply, const Ids& ids,
                                              int64_t last_room) {
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      EXPECT_EQ(reply.take(ids[i], kRoom), std::nullopt) << "token " << i;
    }
    return reply.take(ids.back(), last_room);
  }

  ReplyOptions options_;
  ReplyProgress::Clock::time_point now_{};
  bool cancels_ = false;
  Ids heard_;
};

TEST_F(ReplyRules, GoesOnWhereNoRuleApplies) {
  options_.max_tokens = 20;
  options_.stop_ids = {7};
  options_.timeout_s = 5;
  options_.stop_on_repetition = true;
  ReplyProgress r = make();
  EXPECT_EQ(r.tokens_left(), 20);
  EXPECT_EQ(take_all(r, {1, 0, 0, 0, 2, 3}, 1), std::nullopt);
  EXPECT_EQ(r.ids(), (Ids{1, 0, 0, 0, 2, 3}));
  EXPECT_EQ(heard_, r.ids());
  EXPECT_EQ(r.tokens_left(), 14);
}

TEST_F(ReplyRules, NotFiniteComesBeforeAllOthersAndEmitsNothing) {
  options_.max_tokens = 1;
  options_.stop_ids = {-1};
  options_.timeout_s = 1;
  cancels_ = true;
  ReplyProgress r = make();
  pass_seconds(2);
  EXPECT_EQ(r.take(-1, 0), FinishReason::not_finite);
  EXPECT_TRUE(r.ids().empty());
  EXPECT_TRUE(heard_.empty());
}

TEST_F(ReplyRules, StopComesBeforeCancelledAndTheTokenIsNotEmitted) {
  options_.max_tokens = 1;
  options_.stop_ids = {8, 0};
  cancels_ = true;
  ReplyProgress r = make();
  EXPECT_EQ(r.take(0, 0), FinishReason::stop);
  EXPECT_TRUE(r.ids().empty());
  EXPECT_TRUE(heard_.empty());
}

TEST_F(ReplyRules, CancelledComesBeforeCollapseAndTheTokenIsEmitted) {
  ReplyProgress r = make();
  EXPECT_EQ(take_all(r, {0, 0, 0}, kRoom), std::nullopt);
  cancels_ = true;
  EXPECT_EQ(r.take(0, kRoom), FinishReason::cancelled);
  EXPECT_EQ(r.ids(), Ids(4, 0));
}

TEST_F(ReplyRules, CollapseComesBeforeLength) {
  options_.max_tokens = 5;
  ReplyProgress r = make();
  EXPECT_EQ(take_all(r, {3, 0, 0, 0, 0}, 0), FinishReason::collapse);
  EXPECT_EQ(r.ids().size(), 5u);
}

// Which of collapse and repetition comes first cannot be seen: a phrase that is repeated and ends
// with four zeros has ended with them before.
TEST_F(ReplyRules, CollapseIsOfTokenZeroAloneAndCanBeSwitchedOff) {
  options_.max_tokens = 15;
  ReplyProgress ones = make();
  EXPECT_EQ(take_all(ones, Ids(15, 1), kRoom), FinishReason::length);
  options_.check_collapse = false;
  ReplyProgress zeros = make();
  EXPECT_EQ(take_all(zeros, Ids(15, 0), kRoom), FinishReason::length);
}

TEST_F(ReplyRules, RepetitionComesBeforeLength) {
  options_.max_tokens = 8;
  const Ids twice{1, 2, 1, 2, 1, 2, 1, 2};
  ReplyProgress plain = make();
  EXPECT_EQ(take_all(plain, twice, 0), FinishReason::length);
  options_.stop_on_repetition = true;
  ReplyProgress strict = make();
  EXPECT_EQ(take_all(strict, twice, 0), FinishReason::repetition);
}

TEST_F(ReplyRules, LengthComesBeforeTimeout) {
  options_.max_tokens = 2;
  options_.timeout_s = 1;
  ReplyProgress r = make();
  EXPECT_EQ(r.take(5, kRoom), std::nullopt);
  pass_seconds(2);
  EXPECT_EQ(r.take(6, 0), FinishReason::length);
}

TEST_F(ReplyRules, TimeoutComesBeforeContextFull) {
  options_.timeout_s = 1;
  ReplyProgress r = make();
  pass_seconds(0.5);
  EXPECT_FALSE(r.timed_out());
  EXPECT_EQ(r.take(5, kRoom), std::nullopt);
  pass_seconds(1);
  EXPECT_TRUE(r.timed_out());
  EXPECT_EQ(r.take(6, 0), FinishReason::timeout);
  EXPECT_EQ(r.ids(), (Ids{5, 6}));
}

TEST_F(ReplyRules, NoTimeoutWhereNoneIsGiven) {
  ReplyProgress r = make();
  pass_seconds(1e6);
  EXPECT_EQ(r.take(5, kRoom), std::nullopt);
  EXPECT_FALSE(r.timed_out());
  EXPECT_NEAR(r.seconds(), 1e6, 1e-3);
}

TEST_F(ReplyRules, ContextFullEmitsTheTokenThatHasNoRoom) {
  ReplyProgress r = make();
  EXPECT_EQ(r.take(5, 1), std::nullopt);
  EXPECT_EQ(r.take(6, 0), FinishReason::context_full);
  EXPECT_EQ(r.ids(), (Ids{5, 6}));
}

TEST_F(ReplyRules, DrawsAreNumberedFromZero) {
  options_.sample.seed = 9;
  ReplyProgress a = make(), b = make();
  EXPECT_EQ(a.next_draw(), 0u);
  EXPECT_EQ(a.next_draw(), 1u);
  EXPECT_EQ(b.next_draw(), 0u);
  EXPECT_EQ(a.sample().seed, 9u);
}

TEST_F(ReplyRules, OptionsOutOfRangeAreRefusedAtOnce) {
  options_.max_tokens = 0;
  EXPECT_THROW(make(), UsageError);
  options_.max_tokens = 1;
  options_.sample.top_p = -1;
  EXPECT_THROW(make(), UsageError);
}

TEST(TailCollapses, FourTimesTokenZeroAtTheEnd) {
  EXPECT_FALSE(tail_collapses({}));
  EXPECT_FALSE(tail_collapses(Ids{0, 0, 0}));
  EXPECT_TRUE(tail_collapses(Ids{5, 0, 0, 0, 0}));
  EXPECT_FALSE(tail_collapses(Ids{0, 0, 0, 0, 5}));
}

TEST(TailRepeats, FindsPhrasesOfAnyPeriod) {
  const std::vector<int32_t> abc{9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
  EXPECT_TRUE(tail_repeats(abc, 8, 4));
  EXPECT_FALSE(tail_repeats(abc, 8, 5));
  EXPECT_FALSE(tail_repeats(abc, 2, 4));
  EXPECT_FALSE(tail_repeats(std::vector<int32_t>(15, 5), 1, 4));
  EXPECT_TRUE(tail_repeats(std::vector<int32_t>(16, 5), 1, 4));
  EXPECT_FALSE(tail_repeats({}, 8, 4));
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// The schedule: what many requests at once are answered is what each is answered alone, bit for
// bit, whoever joins, leaves or is cancelled; limits; shared beginnings are not computed twice.
#include "serve/schedule/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "backends/cpu/cpu_backend.h"
#include "generate/generator.h"
#include "serve/schedule/engine_thread.h"
#include "serve/schedule/token_choice.h"
#include "serve/scheduler_support.h"

namespace nibble::test {
namespace {

TEST_F(SchedulerTest, EightInterleavedRequestsEqualEachAlone) {
  std::vector<GenerateResult> want;
  for (size_t i = 0; i < 8; ++i) want.push_back(alone(kind(i)));
  for (const int64_t places : {1, 3, 8}) {
    DrivenSchedule& s = make(places);
    std::vector<std::shared_ptr<ReplyStream>> streams;
    std::vector<Heard> heard(8);
    for (int tick = 0; tick < 400; ++tick) {
      if (tick % 3 == 0 && streams.size() < 8) streams.push_back(s.submit(kind(streams.size())));
      if (tick == 17) streams[2]->cancel();
      if (tick == 30) streams[6]->cancel();
      s.tick();
      for (size_t i = 0; i < streams.size(); ++i) hear(*streams[i], heard[i]);
    }
    for (size_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(heard[i].ended) << i;
      if (heard[i].end.reason == FinishReason::cancelled) {
        EXPECT_TRUE(i == 2 || i == 6);
        ASSERT_LE(heard[i].ids.size(), want[i].ids.size());
        EXPECT_TRUE(std::equal(heard[i].ids.begin(), heard[i].ids.end(), want[i].ids.begin()));
      } else {
        EXPECT_EQ(heard[i].ids, want[i].ids) << "request " << i << ", " << places << " places";
        EXPECT_EQ(heard[i].end.reason, want[i].reason);
      }
    }
    const SchedulerCounts c = s.counts();
    EXPECT_EQ(c.waiting + c.feeding + c.decoding, 0);
  }
}

TEST_F(SchedulerTest, SharedBeginningsAreNotComputedTwice) {
  DrivenSchedule& s = make(3);
  StreamRequest first = request(40, 1, 4), longer = request(40, 1, 6), other = request(40, 1, 6);
  const auto more = random_tokens(7, 160, 2);
  longer.prompt.insert(longer.prompt.end(), more.begin(), more.end());
  other.prompt.resize(30);
  other.prompt.insert(other.prompt.end(), more.begin(), more.end());
  const auto want_longer = alone(longer), want_other = alone(other), want_first = alone(first);
  EXPECT_EQ(run(std::move(first)).ids, want_first.ids);
  // Another turn of the same, in its place.
  const Heard a = run(std::move(longer));
  EXPECT_EQ(a.ids, want_longer.ids);
  EXPECT_GE(a.end.reused_tokens, 40);
  // Two at once that share a beginning which is in one place: one takes it, one copies.
  StreamRequest again = request(40, 1, 4);
  const auto one = s.submit(std::move(other)), two = s.submit(std::move(again));
  while (s.tick()) continue;
  Heard h1, h2;
  hear(*one, h1);
  hear(*two, h2);
  EXPECT_EQ(h1.ids, want_other.ids);
  EXPECT_EQ(h2.ids, want_first.ids);
  EXPECT_GE(h1.end.reused_tokens, 30);
  EXPECT_GE(h2.end.reused_tokens, 30);
}

// Of 4,000 tokens, counted: in the place they are in, and copied to others that ask at once.
TEST_F(SchedulerTest, ALongBeginningIsNotComputedAgain) {
  Config config = toy_config();
  config.max_positions = 4200;
  toy_ = load_toy(*backend_, config, packed());
  EngineOptions e = engine_options();
  e.context = config.max_positions;
  e.chunk = 512;
  const auto ask = [](uint64_t tail) {
    StreamRequest r = request(4000, 1, 6);
    const auto own = random_tokens(16, 160, tail);
    r.prompt.insert(r.prompt.end(), own.begin(), own.end());
    return r;
  };
  for (const int64_t pool : {0, 3 * 4200}) {
    e.pool = pool;
    DrivenSchedule& s = make(e, 3);
    run(ask(10));
    EXPECT_EQ(s.counts().prompt_tokens, 4016);
    const Heard again = run(ask(11));
    EXPECT_EQ(again.end.reused_tokens, 4000);
    EXPECT_EQ(again.ids, alone(ask(11), e).ids);
    EXPECT_EQ(s.counts().prompt_tokens, 4016 + 16);
    const auto one = s.submit(ask(12)), two = s.submit(ask(13)), three = s.submit(ask(14));
    while (s.tick()) continue;
    EXPECT_EQ(s.counts().prompt_tokens, 4016 + 4 * 16);
    for (const auto& stream : {one, two, three}) {
      Heard h;
      hear(*stream, h);
      EXPECT_EQ(h.end.reused_tokens, 4000);
    }
  }
}

// The second waits for the first one's prompt instead of computing it beside it.
TEST_F(SchedulerTest, TwinsThatComeTogetherComputeTheirPromptOnce) {
  DrivenSchedule& s = make(4);
  std::vector<StreamRequest> twins;
  for (int i = 0; i < 3; ++i) twins.push_back(request(50, 9, 5));
  const auto want = alone(twins[0]);
  const auto streams = s.submit(std::move(twins));
  while (s.tick()) continue;
  int64_t reused = 0;
  for (const auto& stream : streams) {
    Heard h;
    hear(*stream, h);
    EXPECT_EQ(h.ids, want.ids);
    reused += h.end.reused_tokens;
  }
  EXPECT_EQ(reused, 2 * 49);
  EXPECT_EQ(s.counts().prompt_tokens, 52u);
}

TEST_F(SchedulerTest, QueueLimitRefusesAndForgets) {
  DrivenSchedule& s = make(1, {}, 1);
  const auto a = s.submit(request(5, 1)), b = s.submit(request(5, 2));
  EXPECT_THROW(s.submit(request(5, 3)), QueueFull);
  a->cancel();
  s.tick();
  const auto c = s.submit(request(5, 3));
  std::vector<StreamRequest> many;
  for (uint64_t i = 0; i < 3; ++i) many.push_back(request(5, i));
  try {
    s.submit(std::move(many));  // never, however long one waits
    FAIL();
  } catch (const QueueFull&) {
    FAIL();
  } catch (const UsageError&) {
  }
  while (s.tick()) continue;
  EXPECT_EQ(s.counts().refused, 1u);
  s.queue.close();
  EXPECT_THROW(s.submit(request(5, 3)), Closing);
}

TEST_F(SchedulerTest, RefusesWhatCanNeverRun) {
  DrivenSchedule& s = make(2);
  StreamRequest r = request(5, 1);
  r.prompt[2] = 160;
  EXPECT_THROW(s.submit(std::move(r)), UsageError);
  EXPECT_THROW(s.submit(request(97, 1)), UsageError);
  EXPECT_THROW(s.submit(request(0, 1)), UsageError);
  EXPECT_THROW(s.submit(request(5, 1, 0)), UsageError);
  r = request(5, 1);
  r.reply.sample.top_p = 2;
  EXPECT_THROW(s.submit(std::move(r)), UsageError);
  r = request(5, 1);
  r.bias = {{160, 1.f}};
  EXPECT_THROW(s.submit(std::move(r)), UsageError);
  EXPECT_FALSE(s.tick());
}

TEST_F(SchedulerTest, EndsAtTheContext) {
  make(2);
  const Heard h = run(request(90, 3, 50));
  EXPECT_EQ(h.end.reason, FinishReason::context_full);
  EXPECT_EQ(h.ids, alone(request(90, 3, 50)).ids);
}

// What is chosen on the host is what the backend chooses, and the facts are those of the logits.
TEST_F(SchedulerTest, FactsDoNotChangeTheReply) {
  make(2);
  for (const size_t i : {0, 1, 3, 5}) {
    StreamRequest r = kind(i);
    r.top_logprobs = 3;
    const Heard h = run(std::move(r));
    EXPECT_EQ(h.ids, alone(kind(i)).ids);
    ASSERT_EQ(h.facts.size(), h.ids.size());
    for (size_t t = 0; t < h.ids.size(); ++t) {
      EXPECT_EQ(h.facts[t].token.id, h.ids[t]);
      ASSERT_EQ(h.facts[t].top.size(), 3u);
      EXPECT_GE(h.facts[t].top[0].logprob, h.facts[t].top[1].logprob);
      EXPECT_LE(h.facts[t].token.logprob, h.facts[t].top[0].logprob);
    }
  }
}

TEST_F(SchedulerTest, PromptFactsAreThoseOfAWholePass) {
  DrivenSchedule& s = make(2);
  StreamRequest r = request(37, 5, 3);
  const std::vector<int32_t> prompt = r.prompt;
  Engine whole(*backend_, toy_.model, engine_options());
  const std::vector<float> logits = whole.extend_all(prompt);
  r.prompt_logprobs = r.prompt_only = true;
  r.top_logprobs = 2;
  const auto stream = s.submit(std::move(r));
  while (s.tick()) continue;
  const auto facts = stream->take_prompt_facts();
  ASSERT_EQ(facts.size(), prompt.size() - 1);
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    const TokenFacts want = token_facts(std::span(logits).subspan(i * 160, 160), prompt[i + 1], 2);
    EXPECT_EQ(facts[i].token.logprob, want.token.logprob);
    EXPECT_EQ(facts[i].top[0].id, want.top[0].id);
  }
}

class OnlyEven final : public TokenRule {
 public:
  void mask(std::span<float> logits) override {
    for (size_t i = 1; i < logits.size(); i += 2) logits[i] = -INFINITY;
  }
  void take(int32_t id) override { ok = ok && id % 2 == 0; }
  bool ok = true;
};

TEST_F(SchedulerTest, RulesBiasesAndPenaltiesAreObeyed) {
  make(2);
  StreamRequest r = request(9, 4);
  r.rule = std::make_unique<OnlyEven>();
  for (const int32_t id : run(std::move(r)).ids) EXPECT_EQ(id % 2, 0);
  r = request(9, 4);
  r.bias = {{77, 1000.f}};
  EXPECT_EQ(run(std::move(r)).ids, std::vector<int32_t>(12, 77));
  r = request(9, 4);
  r.bias = {{77, 1000.f}};
  r.frequency_penalty = 2000;
  const Heard h = run(std::move(r));
  EXPECT_EQ(h.ids[0], 77);
  EXPECT_EQ(std::ranges::count(h.ids, 77), 1);
}

TEST_F(SchedulerTest, ThreadsHandOverAndAreEnded) {
  DrivenSchedule& s = make(3);
  std::vector<GenerateResult> want;
  for (size_t i = 0; i < 8; ++i) want.push_back(alone(kind(i)));
  {
    EngineThread thread(s.schedule, s.queue);
    std::vector<std::thread> readers;
    for (size_t i = 0; i < 8; ++i) {
      readers.emplace_back([&, i] {
        const auto stream = s.submit(kind(i));
        std::vector<int32_t> ids;
        for (bool ended = false; !ended;) {
          const auto news = stream->wait(std::chrono::milliseconds(100));
          for (const ReplyToken& t : news.tokens) ids.push_back(t.id);
          ended = news.end.has_value();
        }
        EXPECT_EQ(ids, want[i].ids);
      });
    }
    for (std::thread& t : readers) t.join();
    EXPECT_TRUE(s.queue.drain(std::chrono::seconds(10)));
  }
  DrivenSchedule& again = make(1);
  std::shared_ptr<ReplyStream> stream;
  {
    EngineThread thread(again.schedule, again.queue);
    stream = again.submit(request(5, 1, 80));
  }
  Heard h;
  hear(*stream, h);
  ASSERT_TRUE(h.ended);
  EXPECT_TRUE(!h.end.error.empty() || h.end.reason == FinishReason::length);
}

}  // namespace
}  // namespace nibble::test

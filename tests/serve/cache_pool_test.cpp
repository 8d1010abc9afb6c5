// SPDX-License-Identifier: MIT
// A schedule whose cache is a pool of blocks: many short conversations and a long one in the memory
// of a few contexts; when it is full requests wait or give their blocks back, and what is said is
// what each says alone, bit for bit.
#include <gtest/gtest.h>

#include "serve/scheduler_support.h"

namespace nibble::test {
namespace {

class CachePool : public SchedulerTest {
 protected:
  static constexpr int64_t kBlock = 64;  // the toy's keys of a layer in a page of 4 KiB
  EngineOptions pool_of(int64_t blocks) const {
    return {512, 16, DType::f32, DType::f32, DType::bf16, {}, blocks * kBlock};
  }
  EngineOptions whole() const { return {512, 16, DType::f32, DType::f32, DType::bf16, {}}; }
  void SetUp() override {
    if (backend_->traits().page_bytes != 4096) GTEST_SKIP() << "blocks of another size";
  }
  std::vector<Heard> run_all(std::vector<StreamRequest> requests) {
    std::vector<std::shared_ptr<ReplyStream>> streams;
    for (StreamRequest& r : requests) streams.push_back(schedule_->submit(std::move(r)));
    std::vector<Heard> heard(streams.size());
    while (schedule_->tick()) most_ = std::max(most_, schedule_->counts().decoding);
    for (size_t i = 0; i < streams.size(); ++i) hear(*streams[i], heard[i]);
    return heard;
  }
  void expect_all_is_given_back() {
    const CacheBlocks& blocks = engine_->cache().blocks();
    int64_t held = 0;
    for (int64_t p = 0; p < engine_->sequences(); ++p) held += blocks.held(p);
    EXPECT_EQ(blocks.free() + held - blocks.saved(), blocks.blocks());
    EXPECT_EQ(schedule_->counts().waiting + schedule_->counts().decoding, 0);
  }
  int64_t used_blocks() const {
    const CacheBlocks& blocks = engine_->cache().blocks();
    return blocks.blocks() - blocks.free();
  }
  int64_t most_ = 0;  // replies on their way at once
};

// 257 contexts of 512 tokens are 2,056 blocks; here are 263.
TEST_F(CachePool, TwoHundredFiftySixShortConversationsAndALongOneShareIt) {
  make(pool_of(256 + 7), 257, {}, 300);
  const auto make_request = [](size_t i) {
    if (i == 100) return request(330, 7, 100);
    return request(4 + int64_t(i % 9), 1000 + i, 10);
  };
  std::vector<StreamRequest> all;
  for (size_t i = 0; i < 257; ++i) all.push_back(make_request(i));
  const std::vector<Heard> heard = run_all(std::move(all));
  Engine engine(*backend_, toy_.model, whole());
  for (size_t i = 0; i < heard.size(); ++i) {
    const StreamRequest r = make_request(i);
    GenerateOptions g;
    static_cast<ReplyOptions&>(g) = r.reply;
    engine.reset();
    EXPECT_EQ(heard[i].ids, generate(engine, r.prompt, g).ids) << i;
    EXPECT_EQ(heard[i].end.reason, FinishReason::length) << i;
  }
  EXPECT_EQ(schedule_->counts().preempted, 0);
  EXPECT_EQ(schedule_->counts().capacity, 263 * kBlock);
  expect_all_is_given_back();
}

// Eight replies that outgrow a pool of one context.
TEST_F(CachePool, RepliesThatGiveTheirBlocksBackGoOnWhereTheyWere) {
  const auto make_request = [](size_t i) {
    StreamRequest r = kind(i);
    r.reply.max_tokens = 90 + 20 * int64_t(i);
    if (i == 2) r.frequency_penalty = 0.7;
    return r;
  };
  std::vector<StreamRequest> all;
  for (size_t i = 0; i < 8; ++i) all.push_back(make_request(i));
  make(whole(), 8);
  const std::vector<Heard> want = run_all(std::move(all));
  EXPECT_EQ(schedule_->counts().preempted, 0);

  all.clear();
  for (size_t i = 0; i < 8; ++i) all.push_back(make_request(i));
  make(pool_of(8), 8);
  most_ = 0;
  const std::vector<Heard> heard = run_all(std::move(all));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(heard[i].ids, want[i].ids) << i;
    EXPECT_EQ(heard[i].end.reason, want[i].end.reason) << i;
    EXPECT_EQ(heard[i].end.prompt_tokens, want[i].end.prompt_tokens) << i;
  }
  EXPECT_GT(schedule_->counts().preempted, 0);
  EXPECT_GT(most_, 2);
  expect_all_is_given_back();
}

// The likelihoods of a prompt are told once, though it is run twice: by the third request, which is
// half-way through its prompt when the others need its blocks, and by the second, which is
// speaking.
TEST_F(CachePool, FactsOfAPromptThatBeginsAgain) {
  const auto facts_of = [&](const EngineOptions& e) {
    SchedulerOptions o;
    o.chunk_beside = 1;
    make(e, 3, o);
    std::vector<StreamRequest> all;
    for (const auto& [prompt, tokens] : {std::pair(60, 250), {60, 250}, {190, 30}}) {
      all.push_back(request(prompt, 60 + all.size(), tokens));
      all.back().prompt_logprobs = all.size() > 1;
      all.back().top_logprobs = 2;
    }
    const auto streams = schedule_->submit(std::move(all));
    uint64_t while_fed = 0;
    while (schedule_->tick()) {
      const SchedulerCounts c = schedule_->counts();
      if (c.preempted > 0 && while_fed == 0) while_fed = c.prompt_tokens;
    }
    std::vector<std::vector<TokenFacts>> facts;
    for (const auto& s : streams) {
      Heard h;
      facts.push_back(s->take_prompt_facts());
      hear(*s, h);
      facts.push_back(h.facts);
    }
    return std::pair(facts, while_fed);
  };
  const auto want = facts_of(whole()).first;
  EXPECT_EQ(schedule_->counts().preempted, 0);
  const auto [got, fed] = facts_of(pool_of(8));
  EXPECT_GT(fed, 120);
  EXPECT_LT(fed, 310);
  EXPECT_GT(schedule_->counts().preempted, 1);
  EXPECT_EQ(want[5].size(), 30);
  EXPECT_EQ(want[4].size(), 189);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size()) << i;
    for (size_t k = 0; k < got[i].size(); ++k) {
      EXPECT_EQ(got[i][k].token.id, want[i][k].token.id);
      EXPECT_EQ(got[i][k].token.logprob, want[i][k].token.logprob);
    }
  }
}

// Prompts that do not fit beside each other wait, in their order; whoever leaves meanwhile ends.
TEST_F(CachePool, RequestsWaitForRoom) {
  DrivenSchedule& s = make(pool_of(8), 4);
  const auto one = s.submit(request(400, 1, 20)), two = s.submit(request(400, 2, 20)),
             three = s.submit(request(10, 3, 20));
  for (int i = 0; i < 3; ++i) s.tick();
  EXPECT_EQ(s.counts().waiting, 2);  // the short one does not overtake
  // All of its prompt has room from the beginning, though a few tokens of it are there.
  EXPECT_EQ(used_blocks(), 7);
  two->cancel();
  while (s.tick()) continue;
  std::vector<Heard> h(3);
  hear(*one, h[0]), hear(*two, h[1]), hear(*three, h[2]);
  EXPECT_EQ(h[0].ids, alone(request(400, 1, 20), whole()).ids);
  EXPECT_EQ(h[1].end.reason, FinishReason::cancelled);
  EXPECT_TRUE(h[1].ids.empty());
  EXPECT_EQ(h[2].ids, alone(request(10, 3, 20), whole()).ids);
  EXPECT_EQ(s.counts().preempted, 0);
  expect_all_is_given_back();
}

// One that has given its blocks back can still be left, and its time can run out.
TEST_F(CachePool, AReplyThatWaitsForRoomCanEnd) {
  DrivenSchedule& s = make(pool_of(8), 2);
  const auto first = s.submit(request(100, 1, 300)), second = s.submit(request(100, 2, 300));
  while (s.counts().preempted == 0) ASSERT_TRUE(s.tick());
  EXPECT_EQ(s.counts().decoding + s.counts().feeding, 1);
  Heard h1, h2;
  hear(*first, h1), hear(*second, h2);
  const size_t before = h1.ids.size(), then = h2.ids.size();
  for (int i = 0; i < 5; ++i) s.tick();
  hear(*first, h1), hear(*second, h2);
  EXPECT_EQ(h1.ids.size(), before + 5);  // the older one goes on, the younger one waits
  EXPECT_EQ(h2.ids.size(), then);
  second->cancel();
  while (s.tick()) continue;
  hear(*first, h1), hear(*second, h2);
  EXPECT_EQ(h1.ids, alone(request(100, 1, 300), whole()).ids);
  EXPECT_EQ(h2.end.reason, FinishReason::cancelled);
  const auto want = alone(request(100, 2, 300), whole()).ids;
  ASSERT_GT(h2.ids.size(), 10u);
  ASSERT_LT(h2.ids.size(), want.size());
  EXPECT_TRUE(std::equal(h2.ids.begin(), h2.ids.end(), want.begin()));
}

// Whoever gave his blocks back goes on before those who came later begin.
TEST_F(CachePool, WhoWasThereGoesOnFirst) {
  DrivenSchedule& s = make(pool_of(8), 3);
  const auto first = s.submit(request(100, 1, 300)), second = s.submit(request(100, 2, 300));
  s.tick();
  const auto third = s.submit(request(400, 3, 5));
  while (s.counts().preempted == 0) ASSERT_TRUE(s.tick());
  first->cancel();
  Heard h2, h3;
  while (h3.ids.empty() && s.tick()) hear(*second, h2), hear(*third, h3);
  EXPECT_TRUE(h2.ended);  // they do not fit beside each other
  EXPECT_EQ(h2.ids, alone(request(100, 2, 300), whole()).ids);
  EXPECT_FALSE(h3.ids.empty());
}

TEST_F(CachePool, WhatWasUsedLeastRecentlyIsForgottenFirst) {
  make(pool_of(8), 4);
  for (const uint64_t seed : {1, 2, 1}) run(request(100, seed, 4));
  run(request(300, 3, 4));  // five blocks; four are free
  EXPECT_EQ(run(request(100, 1, 4)).end.reused_tokens, 99);
  EXPECT_EQ(run(request(100, 2, 4)).end.reused_tokens, 0);
}

// Twelve conversations with one system prompt of five blocks take 72 without sharing it; here are
// 18. Three of them draw, and one has its logits brought to the host.
TEST_F(CachePool, ConversationsWithOneSystemPromptFitWhereTheyWouldNot) {
  const std::vector<int32_t> system = random_tokens(5 * kBlock + 10, 160, 77);
  const auto make_request = [&](size_t i) {
    StreamRequest r = kind(i % 8);
    r.prompt = system;
    const auto own = random_tokens(3 + int64_t(i % 5), 160, 500 + i);
    r.prompt.insert(r.prompt.end(), own.begin(), own.end());
    r.prompt[system.size()] = int32_t(i);  // here they differ
    r.reply.max_tokens = 25;
    if (i == 2) r.frequency_penalty = 0.7;
    return r;
  };
  const auto make_all = [&] {
    std::vector<StreamRequest> all;
    for (size_t i = 0; i < 12; ++i) all.push_back(make_request(i));
    return all;
  };
  make(pool_of(18), 12);
  const std::vector<Heard> heard = run_all(make_all());
  EXPECT_EQ(most_, 12);  // all at once
  EXPECT_EQ(schedule_->counts().preempted, 0);
  EXPECT_EQ(schedule_->counts().reused_tokens, 11 * system.size());
  EXPECT_LE(schedule_->counts().cached_tokens, schedule_->counts().capacity);
  EXPECT_EQ(schedule_->counts().shared_tokens, 11 * 5 * kBlock);
  EXPECT_LE(engine_->cache().used_bytes(), engine_->cache().memory_bytes());
  expect_all_is_given_back();
  SchedulerOptions apart;
  apart.reuse = false;
  make(whole(), 12, apart);
  const std::vector<Heard> want = run_all(make_all());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(heard[i].ids, want[i].ids) << i;
    EXPECT_EQ(heard[i].ids.size(), 25) << i;
  }
}

// They outgrow the pool, which shares their beginning: whoever gives his blocks back takes nothing
// of it with him, and goes on where he was.
TEST_F(CachePool, RepliesThatShareABeginningGiveWay) {
  const std::vector<int32_t> system = random_tokens(3 * kBlock + 7, 160, 78);
  const auto make_all = [&] {
    std::vector<StreamRequest> all;
    for (size_t i = 0; i < 8; ++i) {
      all.push_back(kind(i));
      std::vector<int32_t>& prompt = all.back().prompt;
      prompt.insert(prompt.begin(), system.begin(), system.end());
      all.back().reply.max_tokens = 60 + 20 * int64_t(i);
      all.back().prompt_logprobs = i == 4;
      if (i == 4) all.back().top_logprobs = 1;
    }
    return all;
  };
  make(whole(), 8);
  const std::vector<Heard> want = run_all(make_all());
  for (const int64_t chunk : {0, 5}) {
    SchedulerOptions o;
    o.chunk_beside = chunk;
    make(pool_of(13), 8, o);
    most_ = 0;
    const std::vector<Heard> heard = run_all(make_all());
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(heard[i].ids, want[i].ids) << i;
    EXPECT_GT(schedule_->counts().preempted, 0);
    EXPECT_GT(most_, 3);
    expect_all_is_given_back();
  }
}

// A new conversation that begins like an old one leaves the old one what it had besides.
TEST_F(CachePool, ABeginningIsSharedAndNotTaken) {
  make(pool_of(8), 3);
  StreamRequest first = request(150, 1, 4), second = request(150, 1, 4), again = request(150, 1, 4);
  const auto tail = random_tokens(20, 160, 9);
  second.prompt.resize(100);
  second.prompt.insert(second.prompt.end(), tail.begin(), tail.end());
  run(std::move(first));
  EXPECT_EQ(used_blocks(), 3);
  EXPECT_EQ(run(std::move(second)).end.reused_tokens, 100);
  EXPECT_EQ(used_blocks(), 4);
  EXPECT_EQ(run(std::move(again)).end.reused_tokens, 149);
  expect_all_is_given_back();
}

// What lies there only in case it comes again makes room for those who ask.
TEST_F(CachePool, KeptBeginningsMakeRoom) {
  DrivenSchedule& s = make(pool_of(8), 3);
  EXPECT_EQ(run(request(200, 1, 4)).end.reused_tokens, 0);
  EXPECT_EQ(run(request(200, 1, 4)).end.reused_tokens, 199);
  EXPECT_EQ(run(request(240, 2, 4)).end.reused_tokens, 0);
  EXPECT_EQ(run(request(200, 1, 4)).end.reused_tokens, 199);  // both are there
  run(request(500, 3, 4));                                    // takes all
  EXPECT_EQ(run(request(200, 1, 4)).end.reused_tokens, 0);
  EXPECT_EQ(s.counts().preempted, 0);
  expect_all_is_given_back();
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// A schedule over a toy model, driven tick by tick, and what its streams said.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "generate/generator.h"
#include "serve/schedule/request_queue.h"
#include "support/toy_model.h"

namespace nibble::test {

struct Heard {
  std::vector<int32_t> ids;
  std::vector<TokenFacts> facts;
  ReplyEnd end;
  bool ended = false;
};

// One schedule behind its queue.
struct DrivenSchedule {
  DrivenSchedule(BatchEngine& engine, const SchedulerOptions& o, int64_t most_waiting)
      : schedule(engine, o), queue({&schedule}, no_tokenizer, most_waiting) {}
  bool tick() {
    const bool busy = schedule.tick();
    queue.deal();
    return busy;
  }
  template <class R>
  auto submit(R requests) {
    return queue.submit(std::move(requests));
  }
  SchedulerCounts counts() const { return queue.counts(); }

  std::optional<Tokenizer> no_tokenizer;
  Scheduler schedule;
  RequestQueue queue;
};

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest()
      : backend_(make_cpu_backend(2)), toy_(load_toy(*backend_, toy_config(), packed())) {}

  static LoadOptions packed() {
    LoadOptions o;
    o.recipe = Recipe::nvfp4;
    return o;
  }
  EngineOptions engine_options() const { return {96, 16, DType::f32, DType::f32, DType::bf16, {}}; }
  DrivenSchedule& make(int64_t places, SchedulerOptions o = {},
                       int64_t most_waiting = RequestQueue::kMostWaiting) {
    return make(engine_options(), places, o, most_waiting);
  }
  DrivenSchedule& make(const EngineOptions& e, int64_t places, SchedulerOptions o = {},
                       int64_t most_waiting = RequestQueue::kMostWaiting) {
    schedule_.reset();
    engine_ = std::make_unique<BatchEngine>(*backend_, toy_.model, e, places);
    if (o.chunk_beside == SchedulerOptions().chunk_beside) o.chunk_beside = 5;  // divides nothing
    schedule_ = std::make_unique<DrivenSchedule>(*engine_, o, most_waiting);
    return *schedule_;
  }
  static StreamRequest request(int64_t prompt, uint64_t seed, int64_t max_tokens = 12) {
    StreamRequest r;
    r.prompt = random_tokens(prompt, 160, seed);
    r.reply.max_tokens = max_tokens;
    r.reply.check_collapse = false;
    return r;
  }
  // Eight that differ in all that may differ.
  static StreamRequest kind(size_t i) {
    StreamRequest r = request(4 + 9 * int64_t(i % 5), 40 + i, 6 + 3 * int64_t(i % 4));
    if (i % 2) r.reply.sample.temperature = 0.9;
    if (i == 3) r.reply.sample.top_k = 20;
    if (i == 5) r.reply.sample.repetition_penalty = 1.3;
    if (i == 7) r.reply.sample.top_p = 0.8;
    r.reply.sample.seed = i;
    return r;
  }
  GenerateResult alone(const StreamRequest& r) { return alone(r, engine_options()); }
  GenerateResult alone(const StreamRequest& r, const EngineOptions& e) {
    Engine engine(*backend_, toy_.model, e);
    GenerateOptions o;
    static_cast<ReplyOptions&>(o) = r.reply;
    return generate(engine, r.prompt, o);
  }
  static void hear(ReplyStream& s, Heard& h) {
    ReplyStream::News news = s.wait(std::chrono::milliseconds(0));
    for (ReplyToken& t : news.tokens) {
      h.ids.push_back(t.id);
      if (t.facts) h.facts.push_back(*t.facts);
    }
    if (news.end) {
      h.end = *news.end;
      h.ended = true;
    }
  }
  Heard run(StreamRequest r) {
    const auto stream = schedule_->submit(std::move(r));
    while (schedule_->tick()) continue;
    Heard h;
    hear(*stream, h);
    EXPECT_TRUE(h.ended);
    return h;
  }

  std::unique_ptr<Backend> backend_;
  ToyModel toy_;
  std::unique_ptr<BatchEngine> engine_;
  std::unique_ptr<DrivenSchedule> schedule_;
};

}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// Several replicas behind one queue: what they say is what one says, bit for bit; who gets which
// request; one that fails takes down its own requests and nobody else's.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "backend/forwarding_backend.h"
#include "core/json.h"
#include "runtime/replicas.h"
#include "serve/api/running_model.h"
#include "serve/schedule/engine_thread.h"
#include "serve/scheduler_support.h"
#include "support/paths.h"
#include "support/text.h"

namespace nibble::test {
namespace {

// A device that can be lost, and found again.
class LostDevice final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  std::atomic<bool> lost{false};

 private:
  void do_upload(Tensor dst, const void* host) override {
    if (lost) throw_device("the device is lost");
    ForwardingBackend::inner_.upload(dst, host);
  }
};

struct Replica {
  Replica(const Model& model, const EngineOptions& e, int64_t places, const SchedulerOptions& o)
      : own(make_cpu_backend(1)),
        backend(*own),
        engine(backend, model, e, places),
        schedule(engine, o) {}
  std::unique_ptr<Backend> own;
  LostDevice backend;
  BatchEngine engine;
  Scheduler schedule;
};

class ReplicasTest : public SchedulerTest {
 protected:
  void make(size_t n, int64_t places, int64_t most_waiting = RequestQueue::kMostWaiting) {
    SchedulerOptions o;
    o.chunk_beside = 5;
    o.try_again = std::chrono::milliseconds(0);
    std::vector<Scheduler*> all;
    for (size_t i = 0; i < n; ++i) {
      replicas_.push_back(std::make_unique<Replica>(toy_.model, long_context(), places, o));
      all.push_back(&replicas_.back()->schedule);
    }
    queue_ = std::make_unique<RequestQueue>(all, no_tokenizer_, most_waiting);
  }
  EngineOptions long_context() const {
    EngineOptions e = engine_options();
    e.context = 256;
    return e;
  }
  bool tick() {
    bool busy = false;
    for (const auto& r : replicas_) busy |= r->schedule.tick();
    queue_->deal();
    return busy;
  }
  int64_t inside(size_t replica) const { return replicas_[replica]->schedule.counts().inside; }

  std::optional<Tokenizer> no_tokenizer_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<RequestQueue> queue_;
};

TEST_F(ReplicasTest, SayWhatOneSays) {
  constexpr size_t kRequests = 24;
  std::vector<GenerateResult> want;
  for (size_t i = 0; i < kRequests; ++i) want.push_back(alone(kind(i), long_context()));
  make(3, 2);
  std::vector<std::unique_ptr<EngineThread>> threads;
  for (const auto& r : replicas_) {
    threads.push_back(std::make_unique<EngineThread>(r->schedule, *queue_));
  }
  std::vector<std::shared_ptr<ReplyStream>> streams;
  for (size_t i = 0; i < kRequests; ++i) streams.push_back(queue_->submit(kind(i)));
  for (size_t i = 0; i < kRequests; ++i) {
    Heard h;
    while (!h.ended) {
      hear(*streams[i], h);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(h.ids, want[i].ids) << i;
    EXPECT_EQ(h.end.reason, want[i].reason) << i;
  }
  EXPECT_TRUE(queue_->drain(std::chrono::seconds(10)));
  uint64_t tokens = 0;
  for (const SchedulerCounts& c : queue_->each_count()) {
    EXPECT_GT(c.tokens, 0u);
    tokens += c.tokens;
  }
  EXPECT_EQ(tokens, queue_->counts().tokens);
  EXPECT_EQ(queue_->counts().inside, 0);
}

TEST_F(ReplicasTest, ARequestGoesWhereItsBeginningIsUnlessOthersAreThere) {
  make(2, 2);
  const auto longer = [](uint64_t seed, int64_t prompt, uint64_t tail) {
    StreamRequest r = request(prompt, seed, 4);
    const auto own = random_tokens(7, 160, tail);
    r.prompt.insert(r.prompt.end(), own.begin(), own.end());
    return r;
  };
  const auto one = queue_->submit(request(100, 1, 4));
  EXPECT_EQ(inside(0), 1);
  const auto two = queue_->submit(request(100, 2, 4));
  EXPECT_EQ(inside(1), 1);  // the first has 100 tokens to run
  while (tick()) continue;
  // Each to its own beginning, also when the others come first.
  const auto b = queue_->submit(longer(2, 100, 3)), a = queue_->submit(longer(1, 100, 4));
  while (tick()) continue;
  Heard ha, hb;
  hear(*a, ha), hear(*b, hb);
  EXPECT_GE(ha.end.reused_tokens, 100);
  EXPECT_GE(hb.end.reused_tokens, 100);
  EXPECT_EQ(hb.ids, alone(longer(2, 100, 3), long_context()).ids);
  // A reply beside weighs as much as 64 tokens: a hundred are worth it, thirty are not.
  const auto busy = queue_->submit(longer(1, 100, 5));
  tick();
  EXPECT_EQ(inside(0), 1);
  const auto worth = queue_->submit(longer(1, 100, 6));
  EXPECT_EQ(inside(0), 2);
  worth->cancel();
  tick();
  queue_->submit(longer(1, 30, 6));
  EXPECT_EQ(inside(1), 1);
  // Choices of one prompt that come together stay together.
  while (tick()) continue;
  std::vector<StreamRequest> twins;
  for (int i = 0; i < 2; ++i) twins.push_back(request(120, 9, 4));
  queue_->submit(std::move(twins));
  EXPECT_EQ(std::max(inside(0), inside(1)), 2);
  while (tick()) continue;
}

TEST_F(ReplicasTest, TheQueueIsOneAndServesWhoeverIsFree) {
  make(2, 1, 1);
  const auto one = queue_->submit(request(5, 1, 60)), two = queue_->submit(request(5, 2, 60));
  const auto three = queue_->submit(request(5, 3, 4));
  tick();
  EXPECT_EQ(inside(0) + inside(1), 2);
  EXPECT_EQ(queue_->counts().waiting, 1);
  EXPECT_EQ(queue_->counts().inside, 3);
  EXPECT_THROW(queue_->submit(request(5, 4)), QueueFull);
  two->cancel();
  tick();
  tick();
  EXPECT_EQ(queue_->counts().waiting, 0);
  Heard h1, h3;
  while (!h3.ended) {
    ASSERT_TRUE(tick());
    hear(*three, h3);
  }
  EXPECT_EQ(h3.ids, alone(request(5, 3, 4), long_context()).ids);
  hear(*one, h1);
  EXPECT_FALSE(h1.ended);  // the place came from the second
  // One that waits can leave, and is counted.
  const auto four = queue_->submit(request(5, 4, 60)), five = queue_->submit(request(5, 5, 4));
  five->cancel();
  queue_->deal();
  Heard h5;
  hear(*five, h5);
  EXPECT_EQ(h5.end.reason, FinishReason::cancelled);
  EXPECT_EQ(queue_->counts().finished["cancelled"], 2u);
  const auto six = queue_->submit(request(5, 6, 4));
  queue_->end("over");
  EXPECT_THROW(queue_->submit(request(5, 7)), Closing);
  Heard h6;
  hear(*six, h6);
  EXPECT_EQ(h6.end.error, "over");
  while (tick()) continue;  // those that had places go on
  Heard h4;
  hear(*one, h1), hear(*four, h4);
  EXPECT_EQ(h1.ids, alone(request(5, 1, 60), long_context()).ids);
  EXPECT_EQ(h4.ids, alone(request(5, 4, 60), long_context()).ids);
}

TEST_F(ReplicasTest, OneThatFailsTakesDownItsOwn) {
  make(2, 2);
  const auto a = queue_->submit(request(9, 1, 30)), b = queue_->submit(request(9, 2, 30));
  for (int i = 0; i < 6; ++i) tick();
  ASSERT_EQ(inside(0), 1);
  ASSERT_EQ(inside(1), 1);
  replicas_[1]->backend.lost = true;
  tick();
  Heard hb;
  hear(*b, hb);
  ASSERT_TRUE(hb.ended);
  EXPECT_EQ(hb.end.error, "the device is lost");
  EXPECT_FALSE(hb.ids.empty());
  const auto each = queue_->each_count();
  EXPECT_EQ(each[0].broken, "");
  EXPECT_EQ(each[1].broken, "the device is lost");
  // It is idle, and nobody is sent there: a third waits for the sound one.
  const auto c = queue_->submit(request(9, 3, 30)), d = queue_->submit(request(9, 4, 30));
  EXPECT_EQ(inside(0), 2);
  EXPECT_EQ(inside(1), 0);
  EXPECT_EQ(queue_->counts().inside, 3);
  for (int i = 0; i < 3; ++i) tick();  // and so it stays while it is tried
  EXPECT_EQ(inside(1), 0);
  EXPECT_EQ(queue_->each_count()[1].broken, "the device is lost");
  replicas_[1]->backend.lost = false;
  tick();
  EXPECT_EQ(queue_->each_count()[1].broken, "");
  EXPECT_EQ(inside(1), 1);
  while (tick()) continue;
  for (const auto& [stream, seed] : {std::pair(a, 1), {c, 3}, {d, 4}}) {
    Heard h;
    hear(*stream, h);
    EXPECT_EQ(h.ids, alone(request(9, uint64_t(seed), 30), long_context()).ids) << seed;
  }
  // Where all have failed requests are told so instead of waiting for ever.
  for (const auto& r : replicas_) r->backend.lost = true;
  for (const uint64_t seed : {5, 6, 7}) {
    const auto s = queue_->submit(request(9, seed, 3));
    tick();
    Heard h;
    hear(*s, h);
    EXPECT_EQ(h.end.error, "the device is lost");
  }
}

// The same over the API, with the model that comes with nibble.
TEST(Replicas, BehindTheApi) {
  using Json = nlohmann::json;
  const auto open = [](const std::string& devices) {
    RuntimeOptions o;
    o.model.model = kSourceDir + std::string("/models/mini");
    EXPECT_EQ(parse_devices(devices, o.device), "");
    o.threads = 3;
    return open_replicas(o, TokenizerNeed::required);
  };
  ServeSettings settings;
  settings.streams = 2;
  const auto answers = [](RunningModel& m) {
    std::vector<std::string> texts;
    for (const double temperature : {0.0, 1.5}) {
      std::vector<std::thread> clients;
      std::vector<std::string> said(6);
      for (size_t i = 0; i < said.size(); ++i) {
        clients.emplace_back([&, i] {
          const Json body = {{"messages", {{{"role", "user"}, {"content", "Tell me a story"}}}},
                             {"temperature", temperature},
                             {"seed", 7 + i},
                             {"max_tokens", 40}};
          const ApiResponse r =
              m.service().answer({"POST", "/v1/chat/completions", body.dump(), {}});
          EXPECT_EQ(r.status, 200) << r.body;
          said[i] = parse_json<Json>(r.body)["choices"][0]["message"]["content"];
        });
      }
      for (std::thread& t : clients) t.join();
      texts.insert(texts.end(), said.begin(), said.end());
    }
    return texts;
  };
  RunningModel one(open("cpu"), "mini", settings);
  std::vector<Runtime> opened = open("cpu,cpu");
  ASSERT_EQ(opened.size(), 2u);
  EXPECT_TRUE(contains(opened[0].backend->name(), "2 threads"));
  EXPECT_TRUE(contains(opened[1].backend->name(), "1 thread"));
  EXPECT_EQ(opened[1].model.memory.capacity(), 0u);  // the weights are those of the first
  auto lost = std::make_shared<LostDevice>(*opened[1].backend);
  const auto real = std::exchange(opened[1].backend, lost);
  settings.schedule.try_again = std::chrono::milliseconds(1);
  RunningModel two(std::move(opened), "mini", settings);
  EXPECT_EQ(answers(two), answers(one));

  const auto get = [](RunningModel& m, const char* path) {
    return m.service().answer({"GET", path, "", {}});
  };
  const auto post = [](RunningModel& m, const Json& body) {
    return m.service().answer({"POST", "/v1/chat/completions", body.dump(), {}});
  };
  EXPECT_EQ(get(one, "/health").body, "{\"status\":\"ok\"}");
  const Json sound = {{"device", "cpu"}, {"status", "ok"}},
             bad = {{"device", "cpu"}, {"status", "error"}};
  EXPECT_EQ(parse_json<Json>(get(two, "/health").body)["replicas"], Json::array({sound, sound}));
  const std::string metrics = get(two, "/metrics").body;
  EXPECT_TRUE(contains(metrics, "nibble_replica_up{replica=\"1\",device=\"cpu\"} 1\n")) << metrics;
  EXPECT_TRUE(contains(metrics, "nibble_requests_total{reason=\"stop\"}")) << metrics;
  EXPECT_TRUE(contains(metrics, "nibble_cache_places 4\n")) << metrics;
  EXPECT_FALSE(contains(get(one, "/metrics").body, "replica"));

  // Every reply of the one that is lost says so; the others say what they always say.
  lost->lost = true;
  int failed = 0;
  const Json hello = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
  const auto text_of = [](const ApiResponse& r) {
    return parse_json<Json>(r.body)["choices"][0]["message"]["content"];
  };
  const Json want = text_of(post(one, hello));
  std::mutex mutex;
  for (int round = 0; round < 20 && failed == 0; ++round) {
    std::vector<std::thread> clients;
    for (int i = 0; i < 8; ++i) {
      clients.emplace_back([&] {
        const ApiResponse r = post(two, hello);
        const std::lock_guard lock(mutex);
        if (r.status == 200) {
          EXPECT_EQ(text_of(r), want);
        } else {
          EXPECT_EQ(r.status, 503);
          EXPECT_TRUE(contains(r.body, "the device is lost")) << r.body;
          ++failed;
        }
      });
    }
    for (std::thread& t : clients) t.join();
  }
  EXPECT_GE(failed, 1);
  EXPECT_LE(failed, 2);  // as many as it has places
  const ApiResponse health = get(two, "/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(parse_json<Json>(health.body)["status"], "degraded");
  EXPECT_EQ(parse_json<Json>(health.body)["replicas"], Json::array({sound, bad}));
  EXPECT_TRUE(
      contains(get(two, "/metrics").body, "nibble_replica_up{replica=\"1\",device=\"cpu\"} 0\n"));
  lost->lost = false;
  for (int i = 0; i < 500 && get(two, "/health").body.find("degraded") != std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(parse_json<Json>(get(two, "/health").body)["status"], "ok");
  two.end(std::chrono::seconds(5));
  EXPECT_EQ(two.counts().inside, 0);
  EXPECT_EQ(post(two, hello).status, 503);
}

}  // namespace
}  // namespace nibble::test

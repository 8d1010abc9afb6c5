// SPDX-License-Identifier: MIT
// A step that is begun before it is asked for (Follow::chosen) changes nothing but the time:
// whether it is the one that comes or something else does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/forwarding_backend.h"
#include "backend/hand_over.h"
#include "generate/generator.h"
#include "support/backends.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

// For a backend that has no such thing: by downloads and uploads.
class HostHandOver final : public HandOver {
 public:
  explicit HostHandOver(Backend& backend) : b_(backend) {}
  void advance(const StepTables& t) override {
    int32_t chosen, position;
    b_.download(&chosen, t.chosen);
    b_.download(&position, t.positions);
    chosen_[position % 2] = chosen;
    b_.upload(t.ids, std::vector{std::max(chosen, 0)}.data());
    for (const Tensor& one : {t.positions, t.slots, t.sequences.view({4}).slice(3, 1)}) {
      int32_t v;
      b_.download(&v, one);
      b_.upload(one, std::vector{v + 1}.data());
    }
    SampleRow row;
    b_.download(&row, t.rows);
    ++row.draw;
    b_.upload(t.rows, &row);
  }
  void mark() override {}
  int32_t chosen_at(int64_t position) override { return chosen_[position % 2]; }

 private:
  Backend& b_;
  int32_t chosen_[2] = {};
};

// The backend's own, or that; counted.
class Counted final : public HandOver {
 public:
  Counted(std::unique_ptr<HandOver> inner, int& count) : inner_(std::move(inner)), count_(count) {}
  void advance(const StepTables& t) override { inner_->advance(t); }
  void mark() override { inner_->mark(); }
  int32_t chosen_at(int64_t position) override {
    ++count_;
    return inner_->chosen_at(position);
  }

 private:
  std::unique_ptr<HandOver> inner_;
  int& count_;
};

class HandsOver final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  std::unique_ptr<HandOver> make_hand_over() override {
    std::unique_ptr<HandOver> of_device = inner_.make_hand_over();
    if (!of_device) of_device = std::make_unique<HostHandOver>(*this);
    return std::make_unique<Counted>(std::move(of_device), count);
  }
  int count = 0;
};

class AheadEngine : public testing::Test {
 protected:
  AheadEngine() : backend_(backend_cases()[1].make()), ahead_(*backend_) {
    LoadOptions load;
    load.dtype = backend_cases()[1].weights;
    load.recipe = Recipe::nvfp4;
    toy_ = load_toy(*backend_, toy_config(), load);
  }
  Engine make(Backend& backend, int64_t context = 256) {
    const BackendCase c = backend_cases()[1];
    return Engine(backend, toy_.model,
                  {context, 0, c.compute, c.stat, DType::bf16, Activations::none});
  }
  std::vector<int32_t> prompt(int64_t n) const { return random_tokens(n, toy_.model.config.V, 3); }
  static SampleOptions drawn() {
    SampleOptions o;
    o.temperature = 0.8;
    o.top_p = 0.9;
    return o;
  }

  std::unique_ptr<Backend> backend_;
  HandsOver ahead_;
  ToyModel toy_;
};

TEST_F(AheadEngine, StepsAreTheSame) {
  Engine plain = make(*backend_), early = make(ahead_);
  plain.feed(prompt(9));
  early.feed(prompt(9));
  int32_t a = plain.sample({}, 0), b = early.sample({}, 0);
  uint64_t draw = 1;
  for (const SampleOptions& o : {SampleOptions{}, drawn(), SampleOptions{}}) {
    for (int i = 0; i < 7; ++i, ++draw) {
      a = plain.step(a, o, draw);
      b = early.step(b, o, draw, Follow::chosen);
      ASSERT_EQ(a, b) << "draw " << draw;
    }
  }
  EXPECT_EQ(ahead_.count, 21);
  EXPECT_EQ(plain.tokens(), early.tokens());
}

TEST_F(AheadEngine, SomethingElseComes) {
  Engine plain = make(*backend_), early = make(ahead_);
  plain.feed(prompt(9));
  early.feed(prompt(9));
  const auto step = [&](int32_t id, const SampleOptions& o, uint64_t draw) {
    const int32_t a = plain.step(id, o, draw), b = early.step(id, o, draw, Follow::chosen);
    EXPECT_EQ(a, b);
    return a;
  };
  const auto same_logits = [&] {
    const auto a = plain.logits(), b = early.logits();
    EXPECT_TRUE(a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
  };
  int32_t id = step(5, {}, 0);
  id = step(id, {}, 1);
  step(id == 7 ? 8 : 7, {}, 2);  // another token
  id = step(3, drawn(), 3);
  step(id, drawn(), 9);  // another draw
  step(4, {}, 10);
  same_logits();  // which the step behind it has overwritten
  for (Engine* e : {&plain, &early}) e->truncate(11);
  id = step(6, {}, 11);
  for (Engine* e : {&plain, &early}) e->feed(prompt(5));
  EXPECT_EQ(plain.sample({}, 12), early.sample({}, 12));
  id = step(id, {}, 13);
  EXPECT_EQ(plain.sample(drawn(), 14), early.sample(drawn(), 14));
  id = step(id, {}, 15);
  same_logits();
  EXPECT_EQ(plain.tokens(), early.tokens());
}

TEST_F(AheadEngine, GenerationEndsTheSameWay) {
  Engine plain = make(*backend_, 24), early = make(ahead_, 24);
  GenerateOptions o;
  o.check_collapse = false;
  for (const SampleOptions& sample : {SampleOptions{}, drawn()}) {
    o.sample = sample;
    for (const int64_t most : {1, 2, 6, 100}) {  // the last one fills the context
      o.max_tokens = most;
      plain.truncate(0);
      early.truncate(0);
      const auto a = generate(plain, prompt(9), o), b = generate(early, prompt(9), o);
      EXPECT_EQ(a.ids, b.ids);
      EXPECT_EQ(a.reason, b.reason);
      EXPECT_EQ(plain.tokens(), early.tokens());
    }
  }
  EXPECT_GT(ahead_.count, 20);
}

// Two engines of one backend, each with a step on its way.
TEST_F(AheadEngine, EnginesDoNotTakeEachOthersTokens) {
  Engine plain = make(*backend_), one = make(ahead_), other = make(ahead_);
  const auto ids_of = [&](Engine& e, int64_t n, auto&& between) {
    e.truncate(0);
    e.feed(prompt(n));
    std::vector<int32_t> ids = {e.sample({}, 0)};
    for (uint64_t draw = 1; draw < 9; ++draw) {
      ids.push_back(e.step(ids.back(), drawn(), draw, Follow::chosen));
      between(draw);
    }
    return ids;
  };
  const auto nothing = [](uint64_t) {};
  const auto alone = ids_of(plain, 9, nothing);
  other.feed(prompt(7));
  int32_t id = other.sample({}, 0);
  const auto beside = ids_of(
      one, 9, [&](uint64_t draw) { id = other.step(id, drawn(), draw + 50, Follow::chosen); });
  EXPECT_EQ(alone, beside);
}

}  // namespace
}  // namespace nibble::test

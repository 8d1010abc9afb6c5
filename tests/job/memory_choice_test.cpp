// SPDX-License-Identifier: MIT
// What `auto` takes, on backends with as much memory as a test gives them.
#include "job/memory_choice.h"

#include <gtest/gtest.h>

#include <set>

#include "backend/forwarding_backend.h"
#include "backends/cpu/cpu_backend.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

class Limited final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  uint64_t memory = UINT64_MAX, host_memory = UINT64_MAX;
  bool is_host = true;
  DeviceKind device = DeviceKind::cpu;
  BackendTraits traits() const override {
    BackendTraits t = ForwardingBackend::traits();
    t.device = device;
    return t;
  }
  uint64_t available_memory() const override { return memory; }
  uint64_t available_host_memory() const override { return host_memory; }
  bool memory_is_host() const override { return is_host; }
};

class MemoryChoiceTest : public testing::Test {
 protected:
  void set_tokens(int64_t n) { settings_.max_tokens = settings_.max_outputs = n; }
  std::vector<MemoryPlan> plans() const {
    return memory_plans(settings_, {}, be_, config_, false, 1);
  }
  std::vector<std::string> order() const {
    std::vector<std::string> names;
    for (const MemoryPlan& p : plans()) names.push_back(name(p.mode, p.recompute));
    return names;
  }
  std::string chosen() {
    choose_memory(settings_, {}, be_, config_, false, 1);
    return name(settings_.memory, settings_.recompute);
  }
  static std::string name(MemoryMode mode, Recompute recompute) {
    return std::string(memory_mode_name(mode)) + " " + std::string(recompute_name(recompute));
  }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  Limited be_{*cpu_};
  Config config_ = toy_config();
  TrainSettings settings_;
};

// Every budget that is just enough for one of the ways: the first in the order of speed that needs
// no more is taken.
TEST_F(MemoryChoiceTest, TheFastestThatFits) {
  set_tokens(256);
  const std::vector<MemoryPlan> all = plans();
  ASSERT_EQ(all.size(), 9u);
  std::set<std::string> taken;
  for (const MemoryPlan& limit : all) {
    be_.memory = limit.total;
    std::string want;
    for (const char* way :
         {"resident none", "release none", "resident mlp", "release mlp", "resident block",
          "release block", "remake none", "remake mlp", "remake block"}) {
      for (const MemoryPlan& p : all) {
        if (want.empty() && name(p.mode, p.recompute) == way && p.total <= be_.memory) want = way;
      }
    }
    EXPECT_EQ(chosen(), want) << "with " << be_.memory << " bytes";
    taken.insert(want);
  }
  EXPECT_GE(taken.size(), 4u);  // or the ways need the same
  for (const MemoryPlan& p : all) be_.memory = std::min(be_.memory, p.total - 1);
  EXPECT_THROW(chosen(), DeviceError);
}

// Where masters can be elsewhere: moving them takes the time of thousands of tokens, which a long
// step hides. Recomputing is paid for by the token.
TEST_F(MemoryChoiceTest, TheOrderDependsOnTheTokensOfAStep) {
  be_.is_host = false;
  const std::vector<std::string> kept = {"resident none", "release none",   "resident mlp",
                                         "release mlp",   "resident block", "release block"};
  std::vector<std::string> few = kept, many = kept;
  few.insert(few.end(),
             {"remake none", "remake mlp", "remake block", "host none", "host mlp", "host block"});
  many.insert(many.end(),
              {"remake none", "host none", "remake mlp", "host mlp", "remake block", "host block"});
  set_tokens(64);
  EXPECT_EQ(order(), few);
  set_tokens(50000);
  EXPECT_EQ(order(), many);
}

// What lies on the host counts against the host's memory, of which a sixteenth stays free.
TEST_F(MemoryChoiceTest, TheHostsMemoryIsLimitedToo) {
  be_.is_host = false;
  set_tokens(64);
  MemoryPlan host;
  for (const MemoryPlan& p : plans()) {
    if (p.mode == MemoryMode::host && p.recompute == Recompute::none) host = p;
  }
  ASSERT_GT(host.on_host, 0u);
  TrainChoices choices;
  choices.memory = MemoryChoice::host;
  choices.recompute = RecomputeChoice::none;
  const auto fits = [&] {
    return memory_plans(settings_, choices, be_, config_, false, 1).front().fits;
  };
  be_.memory = host.total;
  be_.host_memory = host.on_host / 15 * 16 + 16;
  EXPECT_TRUE(fits());
  be_.host_memory = host.on_host;
  EXPECT_FALSE(fits());
  be_.host_memory = UINT64_MAX;
  --be_.memory;
  EXPECT_FALSE(fits());
}

// A GPU's driver takes memory for kernels and libraries after the plan was made.
TEST_F(MemoryChoiceTest, OnAGpuRoomIsLeftForTheDriver) {
  set_tokens(64);
  const auto first = [&] { return plans().front(); };
  be_.memory = first().total;
  EXPECT_TRUE(first().fits);
  be_.device = DeviceKind::cuda;
  EXPECT_FALSE(first().fits);
  be_.memory = first().total + (uint64_t(256) << 20);
  EXPECT_TRUE(first().fits);
  --be_.memory;
  EXPECT_FALSE(first().fits);
}

}  // namespace
}  // namespace nibble::test

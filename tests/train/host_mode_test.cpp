// SPDX-License-Identifier: MIT
// Memory mode host on a backend whose updates come as late as the contract allows, at
// await_updates: what is waited for too late, or not at all, shows in the bits.
#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "backend/forwarding_backend.h"
#include "backends/cpu/cpu_backend.h"
#include "train/run_support.h"

namespace nibble::test {
namespace {

class LateUpdates final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  bool idle() const { return waiting_.empty(); }

 private:
  struct Update {
    uint64_t mark;  // the first that covers it
    std::function<void()> run;
  };
  Buffer do_allocate_host(size_t n_bytes, std::string_view what) override {
    Buffer b = inner_.allocate(n_bytes, what, Place::host);
    host_.emplace_back(b.data(), b.bytes());
    return b;
  }
  bool on_host(const void* p) const {
    const auto* at = static_cast<const std::byte*>(p);
    for (const auto& [begin, n_bytes] : host_) {
      if (at >= begin && at < begin + n_bytes) return true;
    }
    return false;
  }
  void do_adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                     int64_t begin, int64_t count, const AdamwStep& step,
                     const Requantize& requantize) override {
    const auto now = [=, this] {
      inner_.adamw_step(master, grad, m, v, format, begin, count, step, requantize);
    };
    if (!on_host(master.data)) return now();
    waiting_.push_back({marks_ + 1, now});
  }
  uint64_t do_mark_updates() override { return ++marks_; }
  void do_await_updates(uint64_t mark) override {
    for (; !waiting_.empty() && waiting_.front().mark <= mark; waiting_.pop_front()) {
      waiting_.front().run();
    }
  }

  std::vector<std::pair<const std::byte*, size_t>> host_;
  std::deque<Update> waiting_;
  uint64_t marks_ = 0;
};

std::vector<std::byte> bits_after(Backend& be, const Config& c, const TrainSettings& s) {
  TrainToy toy(be, c, s);
  Trainer trainer(*toy.state);
  for (int64_t i = 0; i < 3; ++i) {
    const PackedBatch b = batch_of_step(c, i);
    trainer.step(std::span(&b, 1));
  }
  return all_bits(*toy.state);
}

void expect_same_as_released(int64_t layers, const std::vector<LrScale>& scales) {
  for (const bool tied : {true, false}) {
    Config c = train_config(tied);
    c.L = layers;
    TrainSettings s = default_settings();
    s.lr_scale = scales;
    s.memory = MemoryMode::release;
    const auto cpu = make_cpu_backend(2);
    const auto want = bits_after(*cpu, c, s);
    s.memory = MemoryMode::host;
    for (const Recompute r : kRecomputes) {
      s.recompute = r;
      LateUpdates late(*cpu);
      EXPECT_TRUE(bits_after(late, c, s) == want)
          << layers << " layers, tied " << tied << ", recompute " << recompute_name(r)
          << (scales.empty() ? "" : ", frozen " + scales.front().pattern);
      EXPECT_TRUE(late.idle());
    }
  }
}

TEST(HostMode, LateUpdatesGiveTheSameBits) {
  for (const int64_t layers : {1, 2, 3, 6}) expect_same_as_released(layers, {});
}

// A frozen layer updates nothing, but its neighbours' gradients share memory.
TEST(HostMode, AlsoBesideFrozenLayers) {
  for (const char* frozen : {"layers.0", "layers.3", "layers.5", "layers.1-4", "model.norm"}) {
    expect_same_as_released(6, {{frozen, 0}});
  }
}

}  // namespace
}  // namespace nibble::test

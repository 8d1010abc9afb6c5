// SPDX-License-Identifier: MIT
// What is chosen where there is no GPU, and what is said where there is too little memory.
#include "runtime/runtime_memory.h"

#include <gtest/gtest.h>

#include "backend/forwarding_backend.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "runtime/replicas.h"
#include "support/paths.h"
#include "support/text.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

TEST(DeviceChoice, AutomaticIsTheCpuWithoutAGpu) {
  ASSERT_FALSE(cuda_support().usable());  // no_gpu.cpp sees to it
  EXPECT_EQ(choose_device(Device::automatic), Device(Device::cpu));
  EXPECT_EQ(choose_device(Device::cpu), Device(Device::cpu));
  EXPECT_THROW(make_backend(Device::cuda, 1), DeviceError);
  EXPECT_THROW(make_backend(Device(Device::cuda, 5), 1), DeviceError);
}

// A backend that has only so much, of its own or of the host's.
class SmallBackend final : public ForwardingBackend {
 public:
  SmallBackend(Backend& inner, uint64_t bytes, bool of_host)
      : ForwardingBackend(inner), bytes_(bytes), of_host_(of_host) {}
  uint64_t available_memory() const override { return bytes_; }
  bool memory_is_host() const override { return of_host_; }

 private:
  uint64_t bytes_;
  bool of_host_;
};

class Fits : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  std::string problem(const MemoryNeed& need, uint64_t available, bool of_host = false) {
    const SmallBackend small(*cpu_, available, of_host);
    try {
      check_fits(small, need);
      return "";
    } catch (const DeviceError& e) {
      EXPECT_EQ(int(e.code()), 4);
      return e.what();
    }
  }
  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  // 1024 tokens of 64 KiB each.
  MemoryNeed need_{1000 * kMiB, 64 * kMiB,   64 << 10,   1024,
                   1,           DType::bf16, 300 * kMiB, Device::cuda};
};

TEST_F(Fits, ExactlyIsEnough) {
  EXPECT_EQ(problem(need_, 1364 * kMiB), "");
  EXPECT_NE(problem(need_, 1364 * kMiB - 1), "");
}

TEST_F(Fits, SaysEachPartAndTheContextThatWouldFit) {
  const std::string p = problem(need_, 1320 * kMiB);  // 20 MiB for the cache
  for (const char* part :
       {"1.33 GiB", "1000.00 MiB of weights", "64.00 MiB of KV cache (1024 tokens in bf16)",
        "300.00 MiB of workspace", "1.29 GiB available", "--context 320 would fit",
        "--kv-dtype fp8 makes room for 640 tokens", "--device cpu"}) {
    EXPECT_TRUE(contains(p, part)) << part << " in: " << p;
  }
}

TEST_F(Fits, PromisesNoContextWhereTheWeightsAloneDoNotFit) {
  const std::string p = problem(need_, 900 * kMiB);
  EXPECT_FALSE(contains(p, "--context")) << p;
  EXPECT_FALSE(contains(p, "fp8")) << p;
  EXPECT_TRUE(contains(p, "--device cpu")) << p;
  const std::string shared = problem(need_, 900 * kMiB, true);
  EXPECT_FALSE(contains(shared, "--device cpu")) << "there is no other memory: " << shared;
  need_.cache_type = DType::f8_e4m3;
  EXPECT_FALSE(contains(problem(need_, 1320 * kMiB), "fp8 makes")) << p;
}

// Two on one device: caches and workspaces of both, and weights of both or shared ones.
TEST_F(Fits, ReplicasAreCountedTogether) {
  MemoryNeed both = need_, shared = need_;
  add_replica(both, need_, true);
  add_replica(shared, need_, false);
  EXPECT_EQ(both.total(), 2 * need_.total());
  EXPECT_EQ(shared.total(), 2 * need_.total() - 1000 * kMiB);
  EXPECT_EQ(problem(both, 2728 * kMiB), "");
  const std::string p = problem(both, 2640 * kMiB);  // 20 MiB for each cache
  for (const char* part :
       {"2 replicas of the model do not fit beside each other: they need 2.66 GiB",
        "--context 320 would fit"}) {
    EXPECT_TRUE(contains(p, part)) << part << " in: " << p;
  }
}

// Nothing is loaded where the second would not fit: all are asked for first.
TEST(Replicas, AreAskedForBeforeAnythingIsLoaded) {
  RuntimeOptions o;
  o.model.model = kSourceDir + std::string("/models/mini");
  ASSERT_EQ(parse_devices("cpu,cpu,cpu", o.device), "");
  o.threads = 2;
  int asked = 0;
  const auto too_much = [&](const Runtime& r) {
    EXPECT_EQ(r.model.memory.capacity(), 0u);
    ++asked;
    return r.backend->available_memory() / 2;
  };
  const CacheOptions cache;
  try {
    open_replicas(o, TokenizerNeed::optional, &cache, too_much);
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_TRUE(contains(e.what(), "3 replicas of the model do not fit")) << e.what();
  }
  EXPECT_EQ(asked, 3);
  const std::vector<Runtime> all = open_replicas(o, TokenizerNeed::optional, &cache);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_GT(all[0].model.memory.capacity(), 0u);
  EXPECT_EQ(all[2].model.memory.capacity(), 0u);
  EXPECT_EQ(all[2].model.weights.embed.data, all[0].model.weights.embed.data);
  EXPECT_NE(all[2].backend, all[0].backend);
  EXPECT_TRUE(all[0].tokenizer && !all[1].tokenizer);
}

TEST(GpuChunk, IsWhatTheWorkspaceHolds) {
  Config c;  // Qwen3-4B
  c.C = 2560;
  c.L = 36;
  c.Hq = 32;
  c.Hkv = 8;
  c.D = 128;
  c.F = 9728;
  c.V = 151936;
  EXPECT_EQ(gpu_chunk(c, DType::bf16, 1), 2048);
  EXPECT_EQ(gpu_chunk(c, DType::f32, 1), 1024);
  EXPECT_LT(gpu_chunk(c, DType::bf16, 64), 2048);
  EXPECT_EQ(gpu_chunk(c, DType::bf16, 1000), 128);
  EXPECT_EQ(gpu_chunk(toy_config(), DType::f32, 1), 2048);
}

TEST_F(Fits, OnTheCpuNothingIsSaidOfGpus) {
  need_.device = Device::cpu;
  need_.workspace = 0;
  const std::string p = problem(need_, 1040 * kMiB);
  EXPECT_TRUE(contains(p, "--context 640 would fit")) << p;
  EXPECT_FALSE(contains(p, "--device cpu")) << p;
  EXPECT_FALSE(contains(p, "workspace")) << p;
}

}  // namespace
}  // namespace nibble::test

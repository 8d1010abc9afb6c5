// SPDX-License-Identifier: MIT
// --device: what is accepted, what is chosen, and what is said where there is no GPU or too little
// memory. Everything here runs without one.
#include <gtest/gtest.h>

#include "apps/cli_run.h"
#include "backend/forwarding_backend.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "runtime/runtime_memory.h"

namespace nibble::test {
namespace {

TEST(DeviceOption, ReadsAndWritesNames) {
  const std::pair<const char*, Device> names[] = {{"auto", Device::automatic},
                                                  {"cpu", Device::cpu},
                                                  {"cuda", Device::cuda},
                                                  {"cuda:3", Device(Device::cuda, 3)}};
  for (const auto& [name, device] : names) {
    Device d(Device::cuda, 7);
    EXPECT_EQ(parse_value(name, d), "") << name;
    EXPECT_EQ(d, device) << name;
    EXPECT_EQ(toml_value(d), "\"" + std::string(name) + "\"");
  }
  Device zero;
  EXPECT_EQ(parse_value("cuda:0", zero), "");
  EXPECT_EQ(zero, Device(Device::cuda));
  for (const char* bad :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999", "CUDA"}) {
    Device d;
    EXPECT_NE(parse_value(bad, d), "") << bad;
    EXPECT_EQ(d, Device()) << bad;
  }
}

TEST(DeviceOption, AutomaticIsTheCpuWithoutAGpu) {
  ASSERT_FALSE(cuda_support().usable());  // no_gpu.cpp sees to it
  EXPECT_EQ(choose_device(Device::automatic), Device(Device::cpu));
  EXPECT_EQ(choose_device(Device::cpu), Device(Device::cpu));
  EXPECT_THROW(make_backend(Device::cuda, 1), DeviceError);
  EXPECT_THROW(make_backend(Device(Device::cuda, 5), 1), DeviceError);
}

// Every command that computes answers the same way: exit 4, what is missing, what helps.
TEST(DeviceOption, AGpuThatIsNotThereIsExit4) {
  const std::string model = golden("predecessor");
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "--model", model, "--input-ids", "1,2"},
      {"check", "--model", model},
      {"trace", "--model", model, "--input-ids", "1,2", "--top", "1"},
      {"bench", "--model", model},
  };
  for (std::vector<std::string> args : commands) {
    for (const char* device : {"cuda", "cuda:1"}) {
      std::vector<std::string> with = args;
      with.insert(with.end(), {"--device", device});
      cli_fails(with, 4, "--device cuda: ");
      cli_fails(with, 4, "use --device cpu");
    }
    args.insert(args.end(), {"--device", "gpu"});
    cli_fails(args, 2, "auto, cpu, cuda, cuda:N");
  }
  cli_fails({"trace", "--model", model, "--input-ids", "1,2", "--out", "x", "--dump", "grads",
             "--device", "cuda"},
            4, "--device cuda: ");
}

TEST(DeviceOption, WhatOnlyAGpuCanDoIsRefusedOnTheCpu) {
  const std::string model = golden("predecessor");
  const auto generate = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"generate", "--model", model, "--input-ids", "1,2"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  cli_fails(generate({"--require-native-fp4"}), 2, "add --activations nvfp4");
  cli_fails(generate({"--require-native-fp4", "--activations", "nvfp4", "--device", "cpu"}), 2,
            "found --device cpu");
  cli_fails(generate({"--compute-dtype", "fp8"}), 2, "--compute-dtype");
}

// A backend that has only so much.
class SmallBackend final : public ForwardingBackend {
 public:
  SmallBackend(Backend& inner, uint64_t bytes) : ForwardingBackend(inner), bytes_(bytes) {}
  uint64_t available_memory() const override { return bytes_; }

 private:
  uint64_t bytes_;
};

class Fits : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  std::string problem(const MemoryNeed& need, uint64_t available) {
    const SmallBackend small(*cpu_, available);
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
  MemoryNeed need_{1000 * kMiB, 64 * kMiB, 64 << 10, 1024, DType::bf16, 300 * kMiB, Device::cuda};
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
  need_.cache_type = DType::f8_e4m3;
  EXPECT_FALSE(contains(problem(need_, 1320 * kMiB), "fp8 makes")) << p;
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

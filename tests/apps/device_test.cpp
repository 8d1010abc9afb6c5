// SPDX-License-Identifier: MIT
// --device: what is accepted, and what is said where there is no GPU. Everything here runs without
// one.
#include <gtest/gtest.h>

#include "apps/cli_run.h"
#include "apps/options/device_option.h"

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
  for (const char* name : {"CUDA", "Cuda"}) {  // letter case does not matter
    Device d;
    EXPECT_EQ(parse_value(name, d), "") << name;
    EXPECT_EQ(d, Device(Device::cuda)) << name;
  }
  Device zero;
  EXPECT_EQ(parse_value("cuda:0", zero), "");
  EXPECT_EQ(zero, Device(Device::cuda));
  for (const char* bad :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999", "CUDA:"}) {
    Device d;
    EXPECT_NE(parse_value(bad, d), "") << bad;
    EXPECT_EQ(d, Device()) << bad;
  }
}

TEST(DeviceOption, SeveralOfAKind) {
  Devices d;
  EXPECT_EQ(parse_value("cuda:1,cuda", d), "");
  EXPECT_EQ(static_cast<const Device&>(d), Device(Device::cuda, 1));
  EXPECT_EQ(d.beside, std::vector<Device>{Device(Device::cuda)});
  EXPECT_EQ(toml_value(d), "\"cuda:1,cuda\"");
  EXPECT_EQ(parse_value("cpu,CPU,cpu", d), "");
  EXPECT_EQ(d.beside.size(), 2u);
  EXPECT_EQ(parse_value("cuda", d), "");
  EXPECT_TRUE(d.beside.empty());
  for (const auto& [bad, why] : {std::pair("cpu,cuda", "two kinds"),
                                 {"auto,auto", "each is named"},
                                 {"cpu,", "choices"},
                                 {",cpu", "choices"},
                                 {"cpu,gpu", "choices"}}) {
    EXPECT_TRUE(contains(parse_value(bad, d), why)) << bad << ": " << parse_value(bad, d);
  }
  cli_fails({"trace", "--model", golden("predecessor"), "--input-ids", "1,2", "--top", "1",
             "--device", "cpu,cpu"},
            2, "names 2 devices");
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
  cli_fails(generate({"--require-native-fp4", "--activations", "nvfp4"}), 4,
            "--device auto found no GPU");
  cli_fails(generate({"--compute-dtype", "fp8"}), 2, "--compute-dtype");
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// A GPU that shares the host's memory (DGX Spark), on paper: what there is is the system's to say,
// and a part of it stays for everything else.
#include <gtest/gtest.h>

#include "backends/cuda/cuda_backend.h"
#include "core/error.h"
#include "core/memory_info.h"
#include "fake_gpu.h"
#include "scenes.h"

namespace nibble::test {
namespace {

FakeGpu gpu_named(std::string_view name) {
  for (const FakeGpu& gpu : fake_gpus()) {
    if (gpu.name == name) return gpu;
  }
  throw_internal("no {}", name);
}

TEST(SharedMemory, TheBudgetIsWhatTheSystemHasLessASixteenth) {
  install_fake_gpu(gpu_named("GB10"));  // whose driver would say that all of 128 GiB are free
  const auto backend = make_cuda_backend();
  EXPECT_TRUE(backend->memory_is_host());
  const double before = double(system_memory().available_bytes);
  const double budget = double(backend->available_memory());
  const double after = double(system_memory().available_bytes);
  // Other programs come and go meanwhile.
  EXPECT_LT(budget, 0.96 * std::max(before, after));
  EXPECT_GT(budget, 0.90 * std::min(before, after));
  EXPECT_LE(backend->device_memory().used_by_all, system_memory().total_bytes);
}

TEST(SharedMemory, ACardOfItsOwnIsAskedItself) {
  install_fake_gpu(gpu_named("RTX 4090"));
  const auto backend = make_cuda_backend();
  EXPECT_FALSE(backend->memory_is_host());
  EXPECT_EQ(backend->available_memory(), gpu_named("RTX 4090").memory_bytes);
}

TEST(SharedMemory, WhoRunsOutOfItIsNotSentToTheCpu) {
  for (const char* name : {"GB10", "RTX 4090"}) {
    install_fake_gpu(gpu_named(name));
    const auto backend = make_cuda_backend();
    fail_next_fake_allocation();
    try {
      backend->allocate(size_t(1) << 30, "the test");
      ADD_FAILURE() << "allocated";
    } catch (const DeviceError& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("out of GPU memory"), std::string::npos) << text;
      EXPECT_EQ(text.find("--device cpu") == std::string::npos, std::string_view(name) == "GB10")
          << text;
    }
  }
}

}  // namespace
}  // namespace nibble::test

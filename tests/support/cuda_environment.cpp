// SPDX-License-Identifier: MIT
// Skips every test of a run with NIBBLE_TEST_BACKEND=cuda where no GPU can be used, and says why.
#include <gtest/gtest.h>

#include "support/tested_backend.h"

namespace nibble::test {
namespace {

class NeedsGpu final : public ::testing::Environment {
  void SetUp() override {
    if (!testing_cuda()) return;
    const CudaSupport support = cuda_support();
    if (!support.usable()) GTEST_SKIP() << "no GPU: " << support.problem;
  }
};

[[maybe_unused]] const auto* const registered = ::testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
}  // namespace nibble::test

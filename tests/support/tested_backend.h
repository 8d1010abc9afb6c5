// SPDX-License-Identifier: MIT
// Which backend a test run is about: the CPU's, or with NIBBLE_TEST_BACKEND=cuda the GPU's. ctest
// registers the suites that apply to both twice. NIBBLE_OPS_COVERAGE: see op_coverage.h.
#pragma once
#include <cstdlib>
#include <memory>
#include <string_view>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "support/coverage_backend.h"
#include "support/staged_backend.h"

namespace nibble::test {

inline bool testing_cuda() {
  const char* which = std::getenv("NIBBLE_TEST_BACKEND");
  return which && std::string_view(which) == "cuda";
}

// For tests that leave tensors to the backend and move values with upload and download.
inline std::unique_ptr<Backend> make_model_backend(int threads = 2) {
  return with_op_coverage(testing_cuda() ? make_cuda_backend() : make_cpu_backend(threads));
}

// For tests whose tensors are in host memory. All of one process share the GPU's backend.
inline std::unique_ptr<Backend> make_tested_backend(int threads = 2) {
  if (!testing_cuda()) return with_op_coverage(make_cpu_backend(threads));
  static const std::shared_ptr<StagedBackend::Device> device =
      std::make_shared<StagedBackend::Device>(make_cuda_backend());
  return with_op_coverage(std::make_unique<StagedBackend>(device));
}

}  // namespace nibble::test

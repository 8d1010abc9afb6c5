// SPDX-License-Identifier: MIT
// The backends a model test runs on, each with its types and the bound docs/numerics.md
// gives it for logits and losses.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/ref_backend.h"
#include "support/tested_backend.h"

namespace nibble::test {

struct BackendCase {
  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
  DType compute, stat;
  std::optional<DType> weights;  // type of dense weights; empty: as the file has them
  double bound;                  // relative L2 of logits and loss in this compute type
};

inline std::vector<BackendCase> backend_cases() {
  return {
      {"reference", [] { return std::make_unique<RefBackend<double>>(); }, DType::f64, DType::f64,
       DType::f64, 1e-6},
      {"tested", [] { return make_model_backend(); }, DType::f32, DType::f32, std::nullopt,
       testing_cuda() ? 2e-5 : 5e-6},
  };
}

// The CPU in bf16, which is held to a cosine instead.
inline BackendCase bf16_case() {
  return {"cpu_bf16", [] { return make_cpu_backend(2); }, DType::bf16, DType::f32, DType::bf16, 0};
}

}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// Gradients of a traced input, by the training forward and backward.
#pragma once
#include <string>
#include <vector>

#include "inspect/trace_io.h"
#include "runtime/runtime.h"

namespace nibble {

struct NamedGradient {
  std::string name;  // "grad.model.norm.weight"
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Of the mean loss over every labelled position. Weights and gradients are held in fp32, so that
// nothing but the compute type and the recipe rounds; straight-through where weights are NVFP4.
std::vector<NamedGradient> trace_gradients(const Runtime& runtime, const RuntimeOptions& options,
                                           const TraceInput& input);

}  // namespace nibble

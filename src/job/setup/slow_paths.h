// SPDX-License-Identifier: MIT
// Settings with which training works, but not with the fast kernels: said before a run, so that
// nothing is slow in silence.
#pragma once
#include <optional>
#include <string>

#include "backend/backend.h"
#include "train/settings.h"

namespace nibble {

// Why linear layers on a GPU take the general fp32 kernels, and what would not; nothing when they
// do not. Tensor cores are used where both operands of a product have one 16-bit type; NVFP4
// weights are expanded to whichever the activations have.
std::optional<std::string> slow_on_cuda(const TrainSettings& settings);

// What is faster on a CPU that multiplies pairs of bf16; nothing when it would change nothing.
std::optional<std::string> faster_on_bf16_cpu(const TrainSettings& settings);

// The former as a warning where the backend is CUDA, the latter as a hint on such a CPU.
void warn_of_slow_kernels(const TrainSettings& settings, const Backend& backend);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Sequences of ops recorded as a CUDA graph and replayed with one launch.
#pragma once
#include <functional>
#include <memory>

#include "backend/backend.h"
#include "backends/cuda/context.h"

namespace nibble::cuda {

// The first call runs `ops` (libraries choose and load their kernels then), the second records,
// that and every later one replays.
void repeat(Context& c, std::unique_ptr<Recording>& recording, const std::function<void()>& ops);

}  // namespace nibble::cuda

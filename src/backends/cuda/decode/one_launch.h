// SPDX-License-Identifier: MIT
// A step of decoding as one launch (token_kernel.cuh), for plans and devices that allow it.
#pragma once
#include <string>

#include "backend/decode_plan.h"
#include "backends/cuda/context.h"

namespace nibble::cuda {

// Why `plan` cannot be one launch on this device; "" where it can.
std::string one_launch_problem(const Context& c, const DecodePlan& plan);

// Enqueues embedding, rotation table, and all blocks with the head as one kernel. The plan has no
// problem. Of its memory the table, the logits and the cache are written, and x by the embedding.
void decode_in_one_launch(const Context& c, const DecodePlan& plan);

}  // namespace nibble::cuda

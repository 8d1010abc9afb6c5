// SPDX-License-Identifier: MIT
// The CPU backend: the op set on threads and SIMD (Highway, chosen at run time).
#pragma once
#include <memory>

#include "backend/backend.h"

namespace nibble {

// threads counts the calling one; 0: as many as the process may use.
std::unique_ptr<Backend> make_cpu_backend(int threads);

// Whether products of bf16 are twice as fast as those of fp32 on this processor.
bool cpu_multiplies_bf16_pairs();

}  // namespace nibble

// SPDX-License-Identifier: MIT
// The CPU backend: the op set on threads and SIMD (Highway, chosen at run time).
#pragma once
#include <memory>

#include "backend/backend.h"

namespace nibble {

// threads counts the calling one; 0: as many as the process may use.
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// What lies in a backend's memory, as floats of the host.
#pragma once
#include <vector>

#include "backend/backend.h"

namespace nibble {

// The contiguous float32 contents of a tensor of any float type, in host memory. Waits.
std::vector<float> download_floats(Backend& backend, Tensor t);

}  // namespace nibble

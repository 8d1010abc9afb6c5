// SPDX-License-Identifier: MIT
// What of a device's memory is free. Apart from memory.h, which every kernel's source includes.
#pragma once
#include <cstdint>

namespace nibble::cuda {

struct FreeMemory {
  uint64_t free = 0, total = 0;
};
// For all processes together. Where CPU and GPU share their memory (DGX Spark) the driver counts
// pages of the file cache as used, which make way: there it is what the system has available.
FreeMemory free_memory(int device);

}  // namespace nibble::cuda

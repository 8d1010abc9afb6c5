// SPDX-License-Identifier: MIT
// What this machine and this process have in memory, from /proc.
#pragma once
#include <cstdint>
#include <string>

namespace nibble {

struct MemoryInfo {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  // also limited by the cgroup, where there is one
};
MemoryInfo system_memory();

uint64_t process_peak_bytes();  // high-water mark of the resident set
uint64_t process_resident_bytes();
std::string format_bytes(uint64_t n_bytes);  // "2.83 GiB"

}  // namespace nibble

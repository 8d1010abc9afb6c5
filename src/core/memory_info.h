// SPDX-License-Identifier: MIT
// What this machine and this process have in memory, from /proc.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace nibble {

struct MemoryInfo {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  // also limited by the cgroups we are in
};
MemoryInfo system_memory();
// `m` within the limits of a cgroup ("/a/b", below `root`) and of every one around it.
MemoryInfo within_cgroups(MemoryInfo m, const std::filesystem::path& root,
                          const std::filesystem::path& cgroup);

uint64_t process_peak_bytes();  // high-water mark of the resident set
uint64_t process_resident_bytes();
std::string format_bytes(uint64_t n_bytes);  // "2.83 GiB"

}  // namespace nibble

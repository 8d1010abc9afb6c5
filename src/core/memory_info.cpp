// SPDX-License-Identifier: MIT
#include "core/memory_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace nibble {
namespace {

// "MemAvailable:  123 kB" -> 123 * 1024; 0 when the key is absent.
uint64_t read_kib_field(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string word;
  while (in >> word) {
    if (word == key) {
      uint64_t kib = 0;
      in >> kib;
      return kib * 1024;
    }
    in.ignore(1 << 16, '\n');
  }
  return 0;
}

std::optional<uint64_t> read_number(const char* file) {
  std::ifstream in(file);
  uint64_t n = 0;
  if (in >> n) return n;
  return std::nullopt;  // absent, or the word "max"
}

}  // namespace

MemoryInfo system_memory() {
  MemoryInfo m{read_kib_field("/proc/meminfo", "MemTotal:"),
               read_kib_field("/proc/meminfo", "MemAvailable:")};
  const auto limit = read_number("/sys/fs/cgroup/memory.max");
  const auto used = read_number("/sys/fs/cgroup/memory.current");
  if (limit && used) {
    m.total_bytes = std::min(m.total_bytes, *limit);
    m.available_bytes = std::min(m.available_bytes, *limit > *used ? *limit - *used : 0);
  }
  return m;
}

uint64_t process_peak_bytes() { return read_kib_field("/proc/self/status", "VmHWM:"); }
uint64_t process_resident_bytes() { return read_kib_field("/proc/self/status", "VmRSS:"); }

std::string format_bytes(uint64_t n_bytes) {
  if (n_bytes < 1024) return fmt::format("{} B", n_bytes);
  const char* unit[] = {"KiB", "MiB", "GiB", "TiB"};
  double x = double(n_bytes) / 1024;
  int i = 0;
  while (x >= 1024 && i < 3) x /= 1024, ++i;
  return fmt::format("{:.2f} {}", x, unit[i]);
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "core/memory_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
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

std::optional<uint64_t> read_number(const std::filesystem::path& file) {
  std::ifstream in(file);
  uint64_t n = 0;
  if (in >> n) return n;
  return std::nullopt;  // absent, or the word "max"
}

// "0::/user.slice/session.scope" -> that path; empty without cgroups of the second version.
std::filesystem::path own_cgroup() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return {};
}

}  // namespace

MemoryInfo system_memory() {
  MemoryInfo m{read_kib_field("/proc/meminfo", "MemTotal:"),
               read_kib_field("/proc/meminfo", "MemAvailable:")};
  return within_cgroups(m, "/sys/fs/cgroup", own_cgroup());
}

MemoryInfo within_cgroups(MemoryInfo m, const std::filesystem::path& root,
                          const std::filesystem::path& cgroup) {
  const auto limit_by = [&](const std::filesystem::path& group) {
    const auto limit = read_number(group / "memory.max");
    const auto used = read_number(group / "memory.current");
    if (!limit || !used) return;
    m.total_bytes = std::min(m.total_bytes, *limit);
    m.available_bytes = std::min(m.available_bytes, *limit > *used ? *limit - *used : 0);
  };
  limit_by(root);
  std::filesystem::path group = root;
  for (const auto& part : cgroup.relative_path().lexically_normal()) {
    if (part == "..") break;  // of a namespace that is not ours
    limit_by(group /= part);
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

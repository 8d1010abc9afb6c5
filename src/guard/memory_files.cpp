// SPDX-License-Identifier: MIT
#include "guard/memory_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct MemoryFile {
  uint64_t bytes = 0, mapped = 0;
};
using Files = std::map<uint64_t, MemoryFile>;  // by inode

bool in_memory(const std::string& link) {
  return link.starts_with("/memfd:") ||
         (link.starts_with("/dev/shm/") && link.ends_with(" (deleted)"));
}

// False: the process has none.
bool add_open_files(pid_t pid, Files& files) {
  bool any = false;
  std::error_code ec;
  for (fs::directory_iterator it(fmt::format("/proc/{}/fd", pid), ec), end; !ec && it != end;
       it.increment(ec)) {
    std::error_code gone;
    const fs::path link = fs::read_symlink(it->path(), gone);
    struct stat st {};
    if (gone || !in_memory(link.string()) || ::stat(it->path().c_str(), &st) != 0) continue;
    files[uint64_t(st.st_ino)].bytes = uint64_t(st.st_blocks) * 512;
    any = true;
  }
  return any;
}

// Resident pages of each file in this process's mappings: "from-to perms offset dev inode path",
// followed by lines like "Rss: 12 kB".
void add_mapped(pid_t pid, Files& files) {
  std::ifstream in(fmt::format("/proc/{}/smaps", pid));
  std::map<uint64_t, uint64_t> resident;
  uint64_t inode = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string first, perms, offset, device, path;
    words >> first;
    if (first == "Rss:") {
      uint64_t kib = 0;
      if (inode != 0 && words >> kib) resident[inode] += kib * 1024;
    } else if (!first.ends_with(":")) {
      inode = 0;
      words >> perms >> offset >> device >> inode >> path;
      if (!path.starts_with("/memfd:") && !path.starts_with("/dev/shm/")) inode = 0;
    }
  }
  // Several processes may map the same pages: the largest share is what is surely resident.
  for (const auto& [id, bytes] : resident) {
    if (const auto it = files.find(id); it != files.end()) {
      it->second.mapped = std::max(it->second.mapped, bytes);
    }
  }
}

}  // namespace

uint64_t memory_file_bytes(std::span<const ProcessInfo> processes) {
  constexpr uint64_t kWorthALook = 1 << 20;  // reading mappings is not cheap
  Files files;
  std::vector<pid_t> holders;
  for (const ProcessInfo& p : processes) {
    if (add_open_files(p.pid, files)) holders.push_back(p.pid);
  }
  uint64_t all = 0;
  for (const auto& [inode, f] : files) all += f.bytes;
  if (all < kWorthALook) return all;
  for (const pid_t pid : holders) add_mapped(pid, files);
  uint64_t unmapped = 0;
  for (const auto& [inode, f] : files) unmapped += f.bytes - std::min(f.bytes, f.mapped);
  return unmapped;
}

}  // namespace nibble

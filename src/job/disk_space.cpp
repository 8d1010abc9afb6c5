// SPDX-License-Identifier: MIT
#include "job/disk_space.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <map>

#include "core/error.h"
#include "core/memory_info.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct Disk {
  fs::path somewhere;  // on it
  uint64_t needed = 0;
  std::string what;
};

}  // namespace

void check_space(const std::vector<SpaceNeed>& needs) {
  std::map<dev_t, Disk> disks;
  for (const SpaceNeed& n : needs) {
    fs::path existing = fs::absolute(n.where);
    while (!fs::exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
    struct stat st {};
    if (n.bytes == 0 || ::stat(existing.c_str(), &st) != 0) continue;
    Disk& d = disks[st.st_dev];
    d.somewhere = existing;
    d.needed += n.bytes;
    d.what += fmt::format("\n  {} for {} in {}", format_bytes(n.bytes), n.what, n.where.string());
  }
  for (const auto& [device, d] : disks) {
    struct statvfs st {};
    if (::statvfs(d.somewhere.c_str(), &st) != 0 || st.f_blocks == 0) continue;
    const uint64_t free = uint64_t(st.f_bavail) * st.f_frsize;
    if (free >= d.needed) continue;
    throw_format(
        "the disk of {} has {} free, and this run will need {}:{}\nMake room, or write elsewhere "
        "with --output, --checkpoint-dir or --runs-dir",
        d.somewhere.string(), format_bytes(free), format_bytes(d.needed), d.what);
  }
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "core/memory/reserved_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/error.h"
#include "core/memory_info.h"

namespace nibble {
namespace {

int64_t system_number(const char* file, int64_t otherwise) {
  std::ifstream in(file);
  int64_t n = 0;
  return in >> n ? n : otherwise;
}

}  // namespace

size_t page_bytes() {
  static const auto bytes = size_t(sysconf(_SC_PAGESIZE));
  return bytes;
}

bool can_reserve_pages() { return system_number("/proc/sys/vm/overcommit_memory", 0) != 2; }

int64_t most_mappings() { return system_number("/proc/sys/vm/max_map_count", 65530); }

// A file of memory: two ranges of addresses can show the same page of it.
ReservedPages::ReservedPages(size_t n_bytes, std::string_view what) : n_bytes_(n_bytes) {
  if (n_bytes == 0) return;
  const auto refuse = [&] {
    const int wrong = errno;
    if (fd_ >= 0) ::close(fd_);
    throw_device(
        "{}: {} of addresses cannot be reserved ({}); fewer or shorter sequences need less, and so "
        "does a system without ulimit -v or ulimit -f",
        what, format_bytes(n_bytes), std::strerror(wrong));
  };
  fd_ = ::memfd_create("nibble cache", MFD_CLOEXEC);
  if (fd_ < 0 || ::ftruncate(fd_, off_t(n_bytes)) != 0) refuse();
  void* const p =
      ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (p == MAP_FAILED) refuse();
  data_ = static_cast<std::byte*>(p);
  // A huge page would be there as a whole for the first byte of it. Only a kernel that has none
  // refuses this.
  ::madvise(p, n_bytes, MADV_NOHUGEPAGE);
}

ReservedPages::~ReservedPages() {
  if (data_) ::munmap(data_, n_bytes_);
  if (fd_ >= 0) ::close(fd_);
}

void ReservedPages::check(size_t offset, size_t n_bytes) const {
  if (offset % page_bytes() != 0 || n_bytes % page_bytes() != 0 || offset > n_bytes_ ||
      n_bytes > n_bytes_ - offset)
    throw_internal("{} bytes from {} on are no whole pages of {}", n_bytes, offset, n_bytes_);
}

void ReservedPages::show(size_t at, size_t name, size_t n_bytes) {
  check(at, n_bytes);
  check(name, n_bytes);
  if (n_bytes == 0) return;
  void* const p = ::mmap(data_ + at, n_bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd_, off_t(name));
  if (p == MAP_FAILED) {
    throw_device(
        "{} of the cache cannot be shown at a second address ({}); sysctl vm.max_map_count={} "
        "allows more of it",
        format_bytes(n_bytes), std::strerror(errno), 4 * most_mappings());
  }
  ::madvise(p, n_bytes, MADV_NOHUGEPAGE);
}

void ReservedPages::give_back(size_t name, size_t n_bytes) {
  check(name, n_bytes);
  if (n_bytes == 0) return;
  if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(name), off_t(n_bytes)) !=
      0)
    throw_internal("pages cannot be given back: {}", std::strerror(errno));
}

size_t ReservedPages::used_bytes() const {
  struct stat s = {};
  if (fd_ < 0 || ::fstat(fd_, &s) != 0) return 0;
  return size_t(s.st_blocks) * 512;
}

}  // namespace nibble

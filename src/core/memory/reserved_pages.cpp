// SPDX-License-Identifier: MIT
#include "core/memory/reserved_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/memory_info.h"

namespace nibble {

size_t page_bytes() {
  static const auto bytes = size_t(sysconf(_SC_PAGESIZE));
  return bytes;
}

Buffer reserve_pages(size_t n_bytes, std::string_view what) {
  if (n_bytes == 0) return Buffer();
  void* const p = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    throw_device(
        "{}: {} of addresses cannot be reserved ({}); fewer or shorter sequences need less, and so "
        "does a system without vm.overcommit_memory=2 or ulimit -v",
        what, format_bytes(n_bytes), std::strerror(errno));
  }
  // A huge page would be there as a whole for the first byte of it. Only a kernel that has none
  // refuses this.
  madvise(p, n_bytes, MADV_NOHUGEPAGE);
  return Buffer(static_cast<std::byte*>(p), n_bytes,
                [](std::byte* data, size_t size) { munmap(data, size); });
}

void give_back_pages(std::byte* begin, size_t n_bytes) {
  if (n_bytes == 0) return;
  if (reinterpret_cast<uintptr_t>(begin) % page_bytes() != 0 || n_bytes % page_bytes() != 0)
    throw_internal("{} bytes from {} on are no whole pages", n_bytes, fmt::ptr(begin));
  if (madvise(begin, n_bytes, MADV_DONTNEED) != 0)
    throw_internal("pages cannot be given back: {}", std::strerror(errno));
}

}  // namespace nibble

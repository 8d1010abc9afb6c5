// SPDX-License-Identifier: MIT
#include "backends/cpu/memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "core/memory_info.h"

namespace nibble::cpu {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;
constexpr size_t kAlignment = 4096;
std::atomic<uint64_t> allocations{0};

[[noreturn]] void refuse(size_t n_bytes, std::string_view what) {
  const MemoryInfo memory = system_memory();
  throw_device(
      "out of memory: {} wanted for {}, {} of {} available. A smaller model, context or batch "
      "needs "
      "less.",
      format_bytes(n_bytes), what, format_bytes(memory.available_bytes),
      format_bytes(memory.total_bytes));
}

}  // namespace

Buffer allocate_memory(size_t n_bytes, std::string_view what) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (n_bytes == 0) return Buffer();
  if (n_bytes >= kHugePage) {
    void* p = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) refuse(n_bytes, what);
    // Only a hint: without huge pages the kernel says no and everything still works.
    madvise(p, n_bytes, MADV_HUGEPAGE);
    return Buffer(static_cast<std::byte*>(p), n_bytes,
                  [](std::byte* data, size_t size) { munmap(data, size); });
  }
  const size_t rounded = (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* p = std::aligned_alloc(kAlignment, rounded);
  if (!p) refuse(n_bytes, what);
  std::memset(p, 0, rounded);
  return Buffer(static_cast<std::byte*>(p), n_bytes,
                [](std::byte* data, size_t) { std::free(data); });
}

uint64_t allocation_count() { return allocations.load(std::memory_order_relaxed); }

}  // namespace nibble::cpu

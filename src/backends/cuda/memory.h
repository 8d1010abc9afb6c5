// SPDX-License-Identifier: MIT
// Memory of one backend: what it holds on its device, and what of the host's is page-locked for it.
// Each backend keeps its own account, so that several in one process, on one GPU or on several, do
// not see each other's.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "backend/traits.h"
#include "core/arena.h"

namespace nibble::cuda {

// Shared with the buffers that are counted in it: one may outlive its backend.
class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
 public:
  explicit MemoryAccount(int device) : device_(device) {}

  // A cudaMalloc on the account's device with an owner. Zeroed.
  Buffer allocate_device(size_t n_bytes, std::string_view what);
  // Memory of the host that the device reaches, too, under the same address. Zeroed.
  Buffer allocate_pinned(size_t n_bytes, std::string_view what);
  bool is_pinned(const void* p) const;  // made by allocate_pinned
  DeviceMemory read() const;

 private:
  void count(int64_t n_bytes);

  const int device_;
  mutable std::mutex mutex_;
  DeviceMemory held_;
  std::map<const std::byte*, size_t> pinned_;  // by address
};

// Makes a device the current one of this thread: CUDA's calls speak of that.
void make_current(int device);

}  // namespace nibble::cuda

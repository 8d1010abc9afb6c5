// SPDX-License-Identifier: MIT
// Host memory of the CPU backend: zeroed, aligned, on huge pages where it is large.
#pragma once
#include <cstdint>
#include <string_view>

#include "core/arena.h"

namespace nibble::cpu {

// Throws DeviceError naming `what`, the size and what the machine has left.
Buffer allocate_memory(size_t n_bytes, std::string_view what);
// Calls of allocate_memory so far: tests hold that steady state adds none.
uint64_t allocation_count();

// Scratch that only grows, so that a second step of the same size allocates nothing.
class Workspace {
 public:
  explicit Workspace(const char* what) : what_(what) {}
  // At least n_bytes, 64-byte aligned; contents are unspecified.
  std::byte* get(size_t n_bytes) {
    if (n_bytes > buffer_.bytes()) {
      buffer_ = Buffer();
      buffer_ = allocate_memory(n_bytes, what_);
    }
    return buffer_.data();
  }
  template <class T>
  T* get_as(size_t count) {
    return reinterpret_cast<T*>(get(count * sizeof(T)));
  }

 private:
  const char* what_;
  Buffer buffer_;
};

}  // namespace nibble::cpu

// SPDX-License-Identifier: MIT
#include "backends/cuda/memory.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/check.h"
#include "core/memory_info.h"

namespace nibble::cuda {

// Asked first: setting the device that is current already costs several times as much.
void make_current(int device) {
  int now = -1;
  NIBBLE_CUDA(cudaGetDevice(&now));
  if (now != device) NIBBLE_CUDA(cudaSetDevice(device));
}

void MemoryAccount::count(int64_t n_bytes) {
  const std::lock_guard lock(mutex_);
  held_.bytes = uint64_t(int64_t(held_.bytes) + n_bytes);
  held_.peak_bytes = std::max(held_.peak_bytes, held_.bytes);
  held_.allocations += n_bytes > 0;
}

DeviceMemory MemoryAccount::read() const {
  DeviceMemory memory;
  {
    const std::lock_guard lock(mutex_);
    memory = held_;
  }
  make_current(device_);
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
    memory.used_by_all = total - free;
  } else {
    cudaGetLastError();
  }
  return memory;
}

Buffer MemoryAccount::allocate_device(size_t n_bytes, std::string_view what) {
  if (n_bytes == 0) return Buffer();
  make_current(device_);
  void* p = nullptr;
  const cudaError_t error = cudaMalloc(&p, n_bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    NIBBLE_CUDA(cudaMemGetInfo(&free, &total));
    throw_device(
        "out of GPU memory: {} wanted for {}, {} of {} free, {} held by this process. A smaller "
        "model, context or batch needs less; --device cpu uses the machine's memory.",
        format_bytes(n_bytes), what, format_bytes(free), format_bytes(total),
        format_bytes(read().bytes));
  }
  check(error, "cudaMalloc", __FILE__, __LINE__);
  count(int64_t(n_bytes));
  Buffer buffer(static_cast<std::byte*>(p), n_bytes,
                [account = shared_from_this()](std::byte* data, size_t size) {
                  cudaFree(data);
                  account->count(-int64_t(size));
                });
  NIBBLE_CUDA(cudaMemset(p, 0, n_bytes));
  // The stream of a context does not wait for the default stream's memset.
  NIBBLE_CUDA(cudaStreamSynchronize(nullptr));
  return buffer;
}

Buffer MemoryAccount::allocate_pinned(size_t n_bytes, std::string_view what) {
  if (n_bytes == 0) return Buffer();
  make_current(device_);
  void* p = nullptr;
  const cudaError_t error = cudaHostAlloc(&p, n_bytes, cudaHostAllocPortable);
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw_device("{} of page-locked memory for {} cannot be had ({}); {} are available",
                 format_bytes(n_bytes), what, cudaGetErrorString(error),
                 format_bytes(system_memory().available_bytes));
  }
  std::memset(p, 0, n_bytes);
  {
    const std::lock_guard lock(mutex_);
    pinned_[static_cast<const std::byte*>(p)] = n_bytes;
  }
  return Buffer(static_cast<std::byte*>(p), n_bytes,
                [account = shared_from_this()](std::byte* data, size_t) {
                  {
                    const std::lock_guard lock(account->mutex_);
                    account->pinned_.erase(data);
                  }
                  cudaFreeHost(data);
                });
}

bool MemoryAccount::is_pinned(const void* p) const {
  const std::lock_guard lock(mutex_);
  auto after = pinned_.upper_bound(static_cast<const std::byte*>(p));
  if (after == pinned_.begin()) return false;
  --after;
  return static_cast<const std::byte*>(p) < after->first + after->second;
}

}  // namespace nibble::cuda

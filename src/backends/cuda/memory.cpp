// SPDX-License-Identifier: MIT
#include "backends/cuda/memory.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/check.h"
#include "backends/cuda/free_memory.h"
#include "core/error.h"
#include "core/memory_info.h"

namespace nibble::cuda {

// Asked first: setting the device that is current already costs several times as much.
void make_current(int device) {
  int now = -1;
  NIBBLE_CUDA(cudaGetDevice(&now));
  if (now != device) NIBBLE_CUDA(cudaSetDevice(device));
}

static bool shares_memory(int device) {
  int integrated = 0;
  NIBBLE_CUDA(cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, device));
  return integrated != 0;
}

FreeMemory free_memory(int device) {
  if (shares_memory(device)) {
    const MemoryInfo system = system_memory();
    return {system.available_bytes, system.total_bytes};
  }
  make_current(device);
  size_t free = 0, total = 0;
  NIBBLE_CUDA(cudaMemGetInfo(&free, &total));
  return {free, total};
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
  try {
    const FreeMemory now = free_memory(device_);
    memory.used_by_all = now.total - now.free;
  } catch (const DeviceError&) {  // a report goes on without it
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
    const FreeMemory now = free_memory(device_);
    throw_device(
        "out of GPU memory: {} wanted for {}, {} of {} free, {} held by this process. A smaller "
        "model, context or batch needs less{}.",
        format_bytes(n_bytes), what, format_bytes(now.free), format_bytes(now.total),
        format_bytes(read().bytes),
        shares_memory(device_) ? "; so does a machine with fewer programs open"
                               : "; --device cpu uses the machine's memory");
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

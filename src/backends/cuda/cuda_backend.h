// SPDX-License-Identifier: MIT
// The CUDA backend, and what can be known about GPUs before there is one. No CUDA headers here: a
// build without CUDA has the same functions (no_cuda.cpp).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace nibble {

struct CudaDevice {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  uint64_t total_bytes = 0;
  bool unified_memory = false;  // shares its memory with the CPU (DGX Spark)
};

struct CudaSupport {
  std::vector<CudaDevice> devices;
  std::string problem;  // why there is none to use, and what would help; empty: the first is usable
  bool usable() const { return problem.empty(); }
};
// Asks the driver; never throws.
CudaSupport cuda_support();
// Why this device cannot be used, and what would help; "" where it can. Makes it the current one.
std::string cuda_problem(const CudaDevice& device);

struct CudaOptions {
  int device = 0;
  bool require_native_fp4 = false;  // DeviceError where W4A4 products would be emulated
};
// DeviceError with cuda_support().problem when there is no usable device.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options = {});

bool is_cuda(const Backend& backend);  // itself, not something around it

// Which kernels products of packed weights use on a CUDA backend, for the log; "" on any other.
std::string cuda_linear_kernels(const Backend& backend, DType compute, Activations activations);
// How many recorded sequences of ops became one launch a token, instead of a graph of launches; 0
// on any other backend.
int cuda_whole_tokens(const Backend& backend);

// What updates of masters in host memory take of the device's, once there is one.
constexpr uint64_t kCudaUpdateWindows = uint64_t(72) << 20;

// Device memory held by all buffers and workspaces of this process, now and at most.
struct CudaMemory {
  uint64_t bytes = 0, peak_bytes = 0, allocations = 0;
};
CudaMemory cuda_memory();
// What is in use on the current device, by all processes; 0 without one.
uint64_t cuda_used_memory();

}  // namespace nibble

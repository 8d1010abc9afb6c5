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
  std::string driver = {}, runtime = {};  // CUDA versions, "12.8"; no driver: ""
  bool usable() const { return problem.empty(); }
};
// Asks the driver; never throws.
CudaSupport cuda_support();
// Why this device cannot be used, and what would help; "" where it can. Makes it the current one.
std::string cuda_problem(const CudaDevice& device);

struct CudaOptions {
  // How steps of decoding run: as one launch where the plan and the device allow it, or a launch
  // for each op, to be compared with that. The results are the same, bit for bit.
  enum class Decode { automatic, launches };
  int device = 0;
  Decode decode = Decode::automatic;
  bool require_native_fp4 = false;  // DeviceError where W4A4 products would be emulated
};
// DeviceError with cuda_support().problem when there is no usable device.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options = {});
// The cuBLASLt a backend would open; "" where none is found.
std::string cuda_blas_library();

}  // namespace nibble

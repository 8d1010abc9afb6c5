// SPDX-License-Identifier: MIT
#include "backends/cuda/context.h"

#include <algorithm>
#include <cstdlib>

#include "backends/cuda/blas_lt.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/linear/fp4_algorithms.h"
#include "backends/cuda/kernels/linear/gemm_plans.h"

namespace nibble {
namespace cuda {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  NIBBLE_CUDA(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

}  // namespace

void fail(cudaError_t error, const char* call, const char* file, int line) {
  cudaGetLastError();  // clears what can be cleared
  throw_device("{} ({}) from {} at {}:{}", cudaGetErrorString(error), cudaGetErrorName(error), call,
               file, line);
}

// Library handles, members of Context, belong to the device that is current when they are made.
static int select_device(int index) {
  make_current(index);
  return index;
}

Context::Context(int index)
    : device(select_device(index)),
      memory(std::make_shared<MemoryAccount>(index)),
      blas(std::make_unique<BlasLt>()),
      gemm_plans(std::make_unique<GemmPlans>(*blas)),
      fp4_algorithms(std::make_unique<Fp4Algorithms>()) {
  device_capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, device) +
                      attribute(cudaDevAttrComputeCapabilityMinor, device);
  capability = std::min(device_capability, compiled_capability());
  sm_count = attribute(cudaDevAttrMultiProcessorCount, device);
  cooperative = attribute(cudaDevAttrCooperativeLaunch, device) != 0;
  shared_per_block = size_t(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  l2_bytes = size_t(attribute(cudaDevAttrL2CacheSize, device));
  scratch_ =
      memory->allocate_device(kScratchBytes + kBlasBytes + kCounters * sizeof(unsigned), "scratch");
  NIBBLE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto is_on = [](const char* name) {
    const char* flag = std::getenv(name);
    return flag && flag[0] == '1';
  };
  sync_each_op = is_on("NIBBLE_SYNC_EACH_OP");
  // Where it was measured, and a multiprocessor has the shared memory for it.
  token_kernel = capability == 90 && shared_per_block >= size_t(200) << 10;
}

Context::~Context() {
  cudaSetDevice(device);
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}

void Context::finish(const char* op) const {
  check(cudaGetLastError(), op, __FILE__, __LINE__);
  if (sync_each_op && !capturing) check(cudaStreamSynchronize(stream), op, __FILE__, __LINE__);
}

}  // namespace cuda

CudaSupport cuda_support() {
  CudaSupport s;
  int driver = 0, runtime = 0, n = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  s.runtime = version(runtime);
  if (driver > 0) s.driver = version(driver);
  const cudaError_t error = cudaGetDeviceCount(&n);
  if (error != cudaSuccess || n == 0) {
    cudaGetLastError();
    if (driver == 0) {
      s.problem = "no NVIDIA driver was found on this machine; install one, or use --device cpu";
    } else if (error == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000) {
      s.problem = fmt::format(
          "the NVIDIA driver supports CUDA {}, this build needs {}; update the driver, or use "
          "--device cpu",
          s.driver, s.runtime);
    } else {
      s.problem =
          fmt::format("no CUDA device was found ({}); use --device cpu",
                      error == cudaSuccess ? "the driver lists none" : cudaGetErrorString(error));
    }
    return s;
  }
  for (int i = 0; i < n; ++i) {
    cudaDeviceProp p = {};
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
    s.devices.push_back({i, p.name, p.major, p.minor, p.totalGlobalMem, p.integrated != 0});
  }
  if (s.devices.empty()) {
    s.problem =
        "the NVIDIA driver names devices but describes none; is the machine's GPU in use "
        "or lost (nvidia-smi)? --device cpu works without it";
  } else {
    s.problem = cuda_problem(s.devices[0]);
  }
  return s;
}

std::string cuda_problem(const CudaDevice& d) {
  if (d.major < 8) {
    return fmt::format(
        "{} has compute capability {}.{}; nibble's kernels need 8.0 (Ampere) or later; use "
        "--device cpu",
        d.name, d.major, d.minor);
  }
  if (const cudaError_t error = cudaSetDevice(d.index); error != cudaSuccess) {
    cudaGetLastError();
    return fmt::format("{} cannot be used ({}); use --device cpu", d.name,
                       cudaGetErrorString(error));
  }
  if (cuda::compiled_capability() > 0) return "";
  return fmt::format(
      "this build has no code for {} (compute capability {}.{}); `./nibble.sh build` on this "
      "machine compiles for its GPUs, -DCMAKE_CUDA_ARCHITECTURES=release for every one; --device "
      "cpu works without it",
      d.name, d.major, d.minor);
}

}  // namespace nibble

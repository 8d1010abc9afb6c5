// SPDX-License-Identifier: MIT
// What every CUDA op needs: the device, its stream, library handles and scratch memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "backends/cuda/check.h"
#include "backends/cuda/memory.h"

namespace nibble::cuda {

// What the driver said of a kernel on this device.
struct KernelLimits {
  static constexpr int kMaxCluster = 8;  // of blocks: what every device with clusters can run
  bool shared_allowed = false;           // all of the device's shared memory, see allow_shared
  std::array<int, kMaxCluster + 1> clusters = {};  // resident at once, by size; [1] == 0: not asked
};

// Of the few sources that call cuBLASLt: its header does not come with this one.
class BlasLt;
class GemmPlans;
struct Fp4Algorithms;

struct Context {
  explicit Context(int device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const int device;
  const std::shared_ptr<MemoryAccount> memory;
  int device_capability = 0;  // 90 for 9.0
  // What our kernels were compiled for: the device's own, or less where the driver compiles them
  // from older code, which has no clusters and no dependent launches then.
  int capability = 0;
  int sm_count = 0;
  bool cooperative = false;     // can keep all blocks of a grid resident
  size_t shared_per_block = 0;  // with opt-in
  size_t l2_bytes = 0;
  cudaStream_t stream = nullptr;
  const std::unique_ptr<const BlasLt> blas;
  const std::unique_ptr<GemmPlans> gemm_plans;
  const std::unique_ptr<Fp4Algorithms> fp4_algorithms;

  // Scratch of the op that is being enqueued: ops follow each other on one stream, so each may use
  // all of it. Ops with larger needs work in pieces.
  static constexpr size_t kScratchBytes = size_t(96) << 20;
  // cuBLASLt's workspace and the counters, apart from it; 128 MiB in all.
  // The last four are AdamW's, which may run beside other ops.
  static constexpr size_t kCounters = 4096, kOpCounters = kCounters - 4;
  static constexpr size_t kBlasBytes = (size_t(32) << 20) - kCounters * sizeof(unsigned);
  std::byte* scratch() const { return scratch_.data(); }
  std::byte* blas_workspace() const { return scratch_.data() + kScratchBytes; }
  // Zero between ops: who counts with them leaves them so.
  unsigned* counters() const {
    return reinterpret_cast<unsigned*>(scratch_.data() + kScratchBytes + kBlasBytes);
  }

  void make_current() const { cuda::make_current(device); }  // of the calling thread
  // After the launches of an op: throws what went wrong; waits with NIBBLE_SYNC_EACH_OP=1.
  void finish(const char* op) const;
  bool sync_each_op = false;
  bool capturing = false;  // a graph is being recorded: nothing may wait
  // This device can run a token as one launch (docs/adr/0012). Then products with one token add up
  // in that kernel's order, whether or not it is used: results depend on the device alone.
  bool token_kernel = false;
  bool require_native_fp4 = false;  // W4A4 on FP4 tensor cores whatever the size, or an error

  KernelLimits& limits_of(const void* kernel) const { return limits_[kernel]; }

 private:
  Buffer scratch_;
  mutable std::unordered_map<const void*, KernelLimits> limits_;
};

// compiled_code.cu: what of this build the current device would run: 90 for code of compute
// capability 9.0; 0 where there is none.
int compiled_capability();

}  // namespace nibble::cuda

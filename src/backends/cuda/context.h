// SPDX-License-Identifier: MIT
// What every CUDA op needs: the device, its stream, library handles and scratch memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/cuda/blas_lt.h"
#include "backends/cuda/check.h"
#include "backends/cuda/kernels/blas_gemm.h"
#include "core/arena.h"

namespace nibble::cuda {

// A cudaMalloc with an owner, counted in cuda_memory(). Zeroed.
Buffer allocate_device(size_t n_bytes, std::string_view what);

struct Context {
  explicit Context(int device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int device = 0;
  int capability = 0;  // 90 for 9.0
  int sm_count = 0;
  size_t shared_per_block = 0;  // with opt-in
  size_t l2_bytes = 0;
  cudaStream_t stream = nullptr;
  BlasLt blas;
  std::unique_ptr<GemmPlans> gemm_plans = std::make_unique<GemmPlans>(blas);

  // Scratch of the op that is being enqueued: ops follow each other on one stream, so each may use
  // all of it. Ops with larger needs work in pieces.
  static constexpr size_t kScratchBytes = size_t(96) << 20;
  // cuBLASLt's workspace and the counters, apart from it; 128 MiB in all.
  static constexpr size_t kCounters = 4096;
  static constexpr size_t kBlasBytes = (size_t(32) << 20) - kCounters * sizeof(unsigned);
  std::byte* scratch() const { return scratch_.data(); }
  std::byte* blas_workspace() const { return scratch_.data() + kScratchBytes; }
  // Zero between ops: who counts with them leaves them so.
  unsigned* counters() const {
    return reinterpret_cast<unsigned*>(scratch_.data() + kScratchBytes + kBlasBytes);
  }

  // After the launches of an op: throws what went wrong; waits with NIBBLE_SYNC_EACH_OP=1.
  void finish(const char* op) const;
  bool sync_each_op = false;
  bool capturing = false;  // a graph is being recorded: nothing may wait

 private:
  Buffer scratch_;
};

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// Optimizer steps on masters and moments that live in host memory: piece by piece they are copied
// to the device, updated and copied back, on streams of their own, beside the ops of the main one.
#pragma once
#include <array>

#include "backend/backend.h"
#include "backends/cuda/context.h"

namespace nibble::cuda {

class HostUpdates {
 public:
  static constexpr size_t kDeviceBytes = size_t(72) << 20;  // that it takes of the device's memory

  explicit HostUpdates(Context& c);
  ~HostUpdates();
  HostUpdates(const HostUpdates&) = delete;
  HostUpdates& operator=(const HostUpdates&) = delete;

  // As Backend::adamw_steps; the gradient and the NVFP4 copy are in device memory.
  void step(const AdamwUpdate& update);
  // A number for all steps so far, and what makes the main stream wait for them.
  uint64_t mark();
  void await(uint64_t mark);

 private:
  // Copies are long enough for the bus from some MiB on; three keep both its directions busy.
  static constexpr size_t kWindows = 3, kWindowBytes = size_t(24) << 20;
  static_assert(kWindows * kWindowBytes == kDeviceBytes);
  static constexpr size_t kMarks = 4;  // more are never waited for apart
  struct Window {
    std::byte* memory = nullptr;
    cudaEvent_t loaded = nullptr, updated = nullptr, stored = nullptr;
  };
  enum class Way { to_device, to_host };
  struct Piece;
  void copy(const Piece& piece, Way way, cudaStream_t stream);

  Context& c_;
  Buffer memory_;
  cudaStream_t in_ = nullptr, update_ = nullptr, out_ = nullptr;
  cudaEvent_t gradient_ready_ = nullptr;
  std::array<Window, kWindows> windows_;
  std::array<cudaEvent_t, kMarks> marks_{};
  uint64_t pieces_ = 0, issued_ = 0;
};

}  // namespace nibble::cuda

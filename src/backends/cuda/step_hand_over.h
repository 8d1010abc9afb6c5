// SPDX-License-Identifier: MIT
// The kernel between two steps of decoding, and the host's wait for it (backend/hand_over.h).
#pragma once
#include "backend/hand_over.h"
#include "backends/cuda/context.h"

namespace nibble::cuda {

class StepHandOver {
 public:
  explicit StepHandOver(const Context& c);
  ~StepHandOver();
  StepHandOver(const StepHandOver&) = delete;
  StepHandOver& operator=(const StepHandOver&) = delete;

  void advance(const StepTables& tables) const;
  void mark() const;
  int32_t chosen_at(int64_t position) const;

 private:
  // A step may choose its token before the host has looked at that of the step before.
  static constexpr size_t kPlaces = 2;
  const Context& c_;
  Buffer host_;  // page-locked: i32 [kPlaces], by position
  cudaEvent_t mark_ = nullptr;
};

}  // namespace nibble::cuda

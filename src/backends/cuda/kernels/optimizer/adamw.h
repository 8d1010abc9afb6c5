// SPDX-License-Identifier: MIT
// AdamW on masters and moments that lie anywhere (host_updates.cpp: windows of host memory).
#pragma once
#include "backend/backend.h"
#include "backends/cuda/context.h"
#include "optim/moments.h"

namespace nibble::cuda {

// Address of element 0 of a parameter; only the elements that are updated need to exist.
struct AdamwPlaces {
  void* master;
  MomentView m, v;
};

// As Backend::adamw_steps with one update, whose master and moments are elsewhere.
void adamw_at(const Context& c, const AdamwPlaces& places, const AdamwUpdate& update);

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
// The optimizer's kernels on masters and moments that lie anywhere.
#pragma once
#include "backend/backend.h"
#include "backends/cuda/context.h"
#include "quant/moments.h"

namespace nibble::cuda {

// Where element 0 of a parameter would be; only the elements that are updated need to exist.
struct AdamwPlaces {
  void* master;
  MomentView m, v;
};

// As Backend::adamw_step on a parameter whose master is of `type`.
void adamw_at(const Context& c, const AdamwPlaces& places, DType type, Tensor grad,
              MomentFormat format, int64_t begin, int64_t count, const AdamwStep& step,
              const Requantize& requantize);

}  // namespace nibble::cuda

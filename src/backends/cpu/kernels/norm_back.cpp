// SPDX-License-Identifier: MIT
#include "backends/cpu/kernels/kernels.h"

namespace nibble::cpu {
void rms_norm_back(Context&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Accumulate) {
  throw_internal("rms_norm_back");
}
void norm_rope_back(Context&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Accumulate) {
  throw_internal("norm_rope_back");
}
}  // namespace nibble::cpu

// SPDX-License-Identifier: MIT
#include "backends/cpu/kernels/kernels.h"

namespace nibble::cpu {
void linear_dgrad(Context&, Tensor, Tensor, const LinearWeight&, Accumulate) {
  throw_internal("linear_dgrad");
}
void linear_wgrad(Context&, Tensor, Tensor, Tensor, const GradWrite&) {
  throw_internal("linear_wgrad");
}
void quantize_rows(Context&, const LinearWeight&, int64_t, Tensor, ScaleRule) {
  throw_internal("quantize_rows");
}
}  // namespace nibble::cpu

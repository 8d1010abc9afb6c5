// SPDX-License-Identifier: MIT
#include "backends/cpu/kernels/kernels.h"

namespace nibble::cpu {
void sum_squares(Context&, Tensor, Tensor) { throw_internal("sum_squares"); }
void adamw_step(Context&, Tensor, Tensor, Tensor, Tensor, MomentFormat, int64_t, int64_t,
                const AdamwStep&, const Requantize&) {
  throw_internal("adamw_step");
}
}  // namespace nibble::cpu

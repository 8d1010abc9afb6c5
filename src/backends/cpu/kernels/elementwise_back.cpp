// SPDX-License-Identifier: MIT
#include "backends/cpu/kernels/kernels.h"

namespace nibble::cpu {
void swiglu_back(ThreadPool&, Tensor, Tensor, Tensor, Tensor, Tensor) {
  throw_internal("swiglu_back");
}
void embed_back(Context&, Tensor, Tensor, Tensor, Tensor, const GradWrite&) {
  throw_internal("embed_back");
}
void scatter_rows(ThreadPool&, Tensor, Tensor, Tensor) { throw_internal("scatter_rows"); }
}  // namespace nibble::cpu

// SPDX-License-Identifier: MIT
#include "backends/cuda/kernels/kernels.h"

namespace nibble::cuda {

void linear(const Context&, Tensor, Tensor, const LinearWeight&, Activations) {
  throw_internal("not written");
}
void linear_swiglu(const Context&, Tensor, Tensor, Tensor, const LinearWeight&, Activations) {
  throw_internal("not written");
}

}  // namespace nibble::cuda

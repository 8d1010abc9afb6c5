// SPDX-License-Identifier: MIT
#include "backends/cuda/kernels/kernels.h"

namespace nibble::cuda {

void attention(const Context&, Tensor, Tensor, Tensor, KvView, Tensor) {
  throw_internal("not written");
}

}  // namespace nibble::cuda

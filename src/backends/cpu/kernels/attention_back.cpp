// SPDX-License-Identifier: MIT
#include "backends/cpu/kernels/kernels.h"

namespace nibble::cpu {
void attention_back(Context&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, KvView,
                    Tensor) {
  throw_internal("attention_back");
}
}  // namespace nibble::cpu

// SPDX-License-Identifier: MIT
// token_kernel.cuh for heads of 128.
#include "backends/cuda/decode/token_kernel.cuh"

namespace nibble::cuda {

bool launch_token_128(const Context& c, TokenArgs& a, bool f8_cache, bool bias,
                      TokenLaunch launch) {
  return launch_heads<128>(c, a, f8_cache, bias, launch);
}

}  // namespace nibble::cuda

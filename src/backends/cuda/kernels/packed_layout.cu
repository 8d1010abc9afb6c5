// SPDX-License-Identifier: MIT
#include "backends/cuda/kernels/kernels.h"

namespace nibble::cuda {

size_t packed_bytes(int64_t, int64_t) { throw_internal("not written"); }
void pack_rows(const Context&, const LinearWeight&, int64_t, int64_t, const uint8_t*,
               const uint8_t*) {
  throw_internal("not written");
}
void unpack_rows(const Context&, const LinearWeight&, int64_t, int64_t, uint8_t*, uint8_t*) {
  throw_internal("not written");
}
void quantize_rows(const Context&, const LinearWeight&, int64_t, Tensor, ScaleRule) {
  throw_internal("not written");
}

}  // namespace nibble::cuda

// SPDX-License-Identifier: MIT
#include "quant/int8.h"

#include <algorithm>
#include <cmath>

#include "quant/nvfp4.h"

namespace nibble {

void quantize_int8(const float* x, int64_t n, int8_t* q, float* scales) {
  for (int64_t begin = 0; begin < n; begin += kInt8Block) {
    const int64_t end = std::min(n, begin + kInt8Block);
    const float scale = absolute_maximum(x + begin, end - begin) / 127.0f;
    scales[begin / kInt8Block] = scale;
    if (scale == 0 || !std::isfinite(scale)) {
      std::fill(q + begin, q + end, int8_t(0));
      continue;
    }
    for (int64_t i = begin; i < end; ++i) {
      const float y = std::nearbyint(x[i] / scale);
      q[i] = int8_t(std::clamp(y, -127.0f, 127.0f));
    }
  }
}

void dequantize_int8(const int8_t* q, const float* scales, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = float(q[i]) * scales[i / kInt8Block];
}

}  // namespace nibble

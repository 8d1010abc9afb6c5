// SPDX-License-Identifier: MIT
// The reference activation quantiser: symmetric int8 per 32 elements with an fp32 scale.
#pragma once
#include <cstdint>

namespace nibble {

constexpr int64_t kInt8Block = 32;
constexpr int64_t int8_blocks(int64_t n) { return (n + kInt8Block - 1) / kInt8Block; }

// One row of n elements (a last block may be shorter): scale = fl32(amax / 127),
// q = clamp(RNE(fl32(x / scale)), -127, 127). Where the scale is 0, so are all codes; where it is
// not finite, all codes are 0 and the product with the scale is NaN.
void quantize_int8(const float* x, int64_t n, int8_t* q, float* scales);
void dequantize_int8(const int8_t* q, const float* scales, int64_t n, float* out);

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "convert/raw_cast.h"

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/half.h"

namespace nibble {
namespace {

template <class T, class Convert>
CastLoss cast(const float* x, int64_t n, T* out, Convert&& convert) {
  int64_t changed = 0;
  for (int64_t i = 0; i < n; ++i) {
    out[i] = convert(x[i]);
    changed += to_float(out[i]) != x[i];  // NaN counts here and is taken back below
  }
  CastLoss loss;
  if (changed == 0) return loss;
  for (int64_t i = 0; i < n; ++i) {
    const float back = to_float(out[i]);
    loss.inexact += back != x[i] && !std::isnan(x[i]);
    loss.overflow += std::isinf(back) && std::isfinite(x[i]);
  }
  return loss;
}

}  // namespace

CastLoss cast_from_f32(const float* x, int64_t n, DType to, void* out) {
  switch (to) {
    case DType::f32:
      if (n > 0) std::memcpy(out, x, size_t(n) * sizeof(float));  // none: x may be null
      return {};
    case DType::bf16:
      return cast(x, n, static_cast<bf16_t*>(out), [](float v) { return to_bf16(v); });
    case DType::f16: return cast(x, n, static_cast<f16_t*>(out), [](float v) { return to_f16(v); });
    default: throw_internal("a raw tensor cannot be written as {}", dtype_name(to));
  }
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "backend/download.h"

#include "core/half.h"

namespace nibble {
namespace {

float element_as_float(const std::byte* p, DType t) {
  switch (t) {
    case DType::f32: return *reinterpret_cast<const float*>(p);
    case DType::f64: return float(*reinterpret_cast<const double*>(p));
    case DType::c128: return float(*reinterpret_cast<const double*>(p));
    case DType::bf16: return to_float(*reinterpret_cast<const bf16_t*>(p));
    case DType::f16: return to_float(*reinterpret_cast<const f16_t*>(p));
    default: throw_internal("download_floats of {}", dtype_name(t));
  }
}

}  // namespace

std::vector<float> download_floats(Backend& backend, Tensor t) {
  std::vector<float> out(size_t(t.numel()));
  if (t.dtype == DType::f32 && t.contiguous()) {  // every token's logits come this way
    backend.download(out.data(), t);
    return out;
  }
  const size_t e = dtype_bytes(t.dtype), inner = size_t(t.inner());
  std::vector<std::byte> raw(t.bytes());
  if (t.contiguous()) {
    backend.download(raw.data(), t);
  } else {
    for (int64_t i = 0; i < t.dim(0); ++i)
      backend.download(raw.data() + size_t(i) * inner * e, t.slice(i, 1));
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = element_as_float(raw.data() + i * e, t.dtype);
  return out;
}

}  // namespace nibble

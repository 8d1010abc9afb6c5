// SPDX-License-Identifier: MIT
// Elements of tensors as the reference backend's scalar, whatever they are stored in.
#pragma once
#include <complex>

#include "core/half.h"
#include "core/tensor.h"
#include "quant/codec.h"

namespace nibble::test::ref {

inline double real_part(double v) { return v; }
inline double real_part(std::complex<double> v) { return v.real(); }

template <class T>
T value(const Tensor& t, int64_t i) {
  switch (t.dtype) {
    case DType::f32: return T(double(reinterpret_cast<const float*>(t.data)[i]));
    case DType::f64: return T(reinterpret_cast<const double*>(t.data)[i]);
    case DType::bf16: return T(double(to_float(reinterpret_cast<const bf16_t*>(t.data)[i])));
    case DType::f16: return T(double(to_float(reinterpret_cast<const f16_t*>(t.data)[i])));
    case DType::f8_e4m3: return T(double(e4m3_value(reinterpret_cast<const uint8_t*>(t.data)[i])));
    default: return *(reinterpret_cast<const T*>(t.data) + i);
  }
}

template <class T>
void set_value(const Tensor& t, int64_t i, T v) {
  const double real = real_part(v);
  switch (t.dtype) {
    case DType::f32: reinterpret_cast<float*>(t.data)[i] = float(real); break;
    case DType::f64: reinterpret_cast<double*>(t.data)[i] = real; break;
    case DType::bf16: reinterpret_cast<bf16_t*>(t.data)[i] = to_bf16(float(real)); break;
    case DType::f16: reinterpret_cast<f16_t*>(t.data)[i] = to_f16(float(real)); break;
    case DType::f8_e4m3: reinterpret_cast<uint8_t*>(t.data)[i] = e4m3_encode(float(real)); break;
    default: reinterpret_cast<T*>(t.data)[i] = v;
  }
}

}  // namespace nibble::test::ref

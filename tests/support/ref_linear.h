// SPDX-License-Identifier: MIT
// The linear layer of the reference backend: packed weights, the product and its gradients.
//
// Packed weights in double are the canonical bytes, row by row: codes [in/2], then scales [in/16].
// In complex numbers they are values [out, in]: quantisers act on the real part in float and pass
// the imaginary part (straight-through), which no code could hold.
#pragma once
#include <algorithm>
#include <complex>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "quant/codec.h"
#include "quant/int8.h"
#include "quant/nvfp4.h"
#include "quant/rounding.h"
#include "support/ref_value.h"

namespace nibble::test::ref {

template <class T>
constexpr bool kPackedValues = !std::is_same_v<T, double>;

template <class T>
size_t packed_row_bytes(int64_t in) {
  return kPackedValues<T> ? size_t(in) * sizeof(T) : size_t(in / 2 + in / 16);
}

inline uint8_t* codes_of(const LinearWeight& w, int64_t row) {
  return w.packed.as<uint8_t>() + row * int64_t(packed_row_bytes<double>(w.in));
}
inline uint8_t* scales_of(const LinearWeight& w, int64_t row) {
  return codes_of(w, row) + w.in / 2;
}
template <class T>
T* packed_values(const LinearWeight& w, int64_t row) {
  return reinterpret_cast<T*>(w.packed.as<uint8_t>()) + row * w.in;
}
inline float row_scale_of(const LinearWeight& w, int64_t row) {
  return w.row_scale ? w.row_scale.as<float>()[row] : 1.0f;
}

inline double nvfp4_value(const uint8_t* codes, const uint8_t* scales, int64_t k) {
  const uint8_t pair = codes[k / 2];
  return double(e2m1_value(uint8_t(k % 2 ? pair >> 4 : pair & 15))) *
         double(e4m3_value(scales[k / 16]));
}

template <class T>
void pack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows, const uint8_t* codes,
               const uint8_t* scales) {
  for (int64_t r = row_begin; r < row_begin + rows; ++r) {
    if constexpr (kPackedValues<T>) {
      for (int64_t k = 0; k < w.in; ++k) {
        packed_values<T>(w, r)[k] = T(nvfp4_value(codes, scales, k));
      }
    } else {
      std::copy_n(codes, w.in / 2, codes_of(w, r));
      std::copy_n(scales, w.in / 16, scales_of(w, r));
    }
    codes += w.in / 2;
    scales += w.in / 16;
  }
}

template <class T>
void unpack_rows(const LinearWeight& w, int64_t row_begin, int64_t rows, uint8_t* codes,
                 uint8_t* scales) {
  if constexpr (kPackedValues<T>) throw_internal("complex packed weights are values, not codes");
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(codes_of(w, row_begin + r), w.in / 2, codes + r * w.in / 2);
    std::copy_n(scales_of(w, row_begin + r), w.in / 16, scales + r * w.in / 16);
  }
}

// Row `r` of W as the product sees it, without the row scale.
template <class T>
std::vector<T> weight_row(const LinearWeight& w, int64_t r) {
  std::vector<T> row(static_cast<size_t>(w.in));
  for (int64_t k = 0; k < w.in; ++k) {
    if (!w.is_packed()) {
      row[size_t(k)] = value<T>(w.dense, r * w.in + k);
    } else if constexpr (kPackedValues<T>) {
      row[size_t(k)] = packed_values<T>(w, r)[k];
    } else {
      row[size_t(k)] = nvfp4_value(codes_of(w, r), scales_of(w, r), k);
    }
  }
  return row;
}

template <class T>
void quantize_rows(const LinearWeight& w, int64_t row_begin, Tensor src, ScaleRule rule) {
  const size_t in = size_t(w.in);
  std::vector<float> real(in);
  std::vector<uint8_t> codes(in / 2), scales(in / 16);
  for (int64_t r = 0; r < src.dim(0); ++r) {
    const float g = row_scale_of(w, row_begin + r);
    for (size_t k = 0; k < in; ++k) {
      real[k] = float(real_part(value<T>(src, r * w.in + int64_t(k))));
    }
    nibble::quantize_rows(real.data(), 1, w.in, rule, g, codes.data(), scales.data());
    pack_rows<T>(w, row_begin + r, 1, codes.data(), scales.data());
    if constexpr (kPackedValues<T>) {
      for (int64_t k = 0; k < w.in; ++k) {
        const double imaginary = value<T>(src, r * w.in + k).imag();
        packed_values<T>(w, row_begin + r)[k] += T(0, imaginary / double(g));
      }
    }
  }
}

template <class T>
void quantize_activations(std::vector<T>& x, Activations how) {
  if (how == Activations::none) return;
  std::vector<float> real(x.size()), rounded(x.size());
  for (size_t i = 0; i < x.size(); ++i) real[i] = float(real_part(x[i]));
  const int64_t K = int64_t(x.size());
  if (how == Activations::int8) {
    std::vector<int8_t> q(x.size());
    std::vector<float> scales((x.size() + 31) / 32);
    quantize_int8(real.data(), K, q.data(), scales.data());
    for (size_t i = 0; i < x.size(); ++i)
      x[i] += T(double(q[i]) * double(scales[i / 32]) - real_part(x[i]));
    return;
  }
  std::vector<uint8_t> codes(x.size() / 2), scales(x.size() / 16);
  nibble::quantize_rows(real.data(), 1, K, ScaleRule::absmax, 1.0f, codes.data(), scales.data());
  dequantize_rows(codes.data(), scales.data(), 1, K, 1.0f, rounded.data());
  for (size_t i = 0; i < x.size(); ++i) x[i] += T(double(rounded[i]) - real_part(x[i]));
}

template <class T>
void linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) {
  std::vector<std::vector<T>> inputs;
  for (int64_t n = 0; n < x.dim(0); ++n) {
    inputs.emplace_back(x.row<T>(n), x.row<T>(n) + w.in);
    quantize_activations(inputs.back(), activations);
  }
  for (int64_t r = 0; r < w.out; ++r) {
    const std::vector<T> row = weight_row<T>(w, r);
    const T g(double(row_scale_of(w, r)));
    for (int64_t n = 0; n < x.dim(0); ++n) {
      T acc{};
      for (int64_t k = 0; k < w.in; ++k) acc += inputs[size_t(n)][size_t(k)] * row[size_t(k)];
      out.row<T>(n)[r] = acc * g;
    }
  }
}

template <class T>
void linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w, Accumulate accumulate) {
  std::vector<std::vector<T>> sums(size_t(dx.dim(0)), std::vector<T>(size_t(w.in)));
  for (int64_t r = 0; r < w.out; ++r) {
    const std::vector<T> row = weight_row<T>(w, r);
    const T g(double(row_scale_of(w, r)));
    for (int64_t n = 0; n < dx.dim(0); ++n) {
      const T d = dy.row<T>(n)[r] * g;
      for (size_t k = 0; k < row.size(); ++k) sums[size_t(n)][k] += d * row[k];
    }
  }
  for (int64_t n = 0; n < dx.dim(0); ++n) {
    for (int64_t k = 0; k < w.in; ++k) {
      const int64_t at = n * dx.row_stride + k;
      const T before = accumulate == Accumulate::yes ? value<T>(dx, at) : T{};
      set_value<T>(dx, at, before + sums[size_t(n)][size_t(k)]);
    }
  }
}

// One element of a gradient, as the contract of GradWrite says.
template <class T>
void store_gradient(Tensor dw, int64_t element, T sum, const GradWrite& write) {
  if (write.accumulate == Accumulate::yes) sum += value<T>(dw, element);
  if (dw.dtype == DType::bf16 && write.accumulate == Accumulate::yes) {
    dw.as<bf16_t>()[element] =
        stochastic_bf16(float(real_part(sum)),
                        random_bits(write.seed, write.stream, uint64_t(write.offset + element)));
    return;
  }
  set_value<T>(dw, element, sum);
}

template <class T>
void linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) {
  const int64_t in = dw.dim(1);
  for (int64_t r = 0; r < dw.dim(0); ++r) {
    for (int64_t k = 0; k < in; ++k) {
      T sum{};
      for (int64_t n = 0; n < x.dim(0); ++n) sum += dy.row<T>(n)[r] * x.row<T>(n)[k];
      store_gradient(dw, r * in + k, sum, write);
    }
  }
}

}  // namespace nibble::test::ref

// SPDX-License-Identifier: MIT
// Gradients of the linear layer.
#include <vector>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/linear.h"
#include "backends/cpu/kernels/packed_layout.h"
#include "core/half.h"
#include "quant/rounding.h"

namespace nibble::cpu {
namespace {

std::vector<float> floats_of(const Tensor& t) {
  std::vector<float> v(size_t(t.numel()));
  rows_to_float(t, v.data(), 0, t.dim(0));
  return v;
}

void put(const Tensor& t, int64_t at, float sum, const GradWrite& write) {
  const bool add = write.accumulate == Accumulate::yes;
  if (t.dtype == DType::f32) {
    float& d = t.as<float>()[at];
    d = add ? d + sum : sum;
  } else if (t.dtype == DType::bf16) {
    bf16_t& d = t.as<bf16_t>()[at];
    d = add ? stochastic_bf16(to_float(d) + sum,
                              random_bits(write.seed, write.stream, uint64_t(at)))
            : to_bf16(sum);
  } else {
    f16_t& d = t.as<f16_t>()[at];
    d = to_f16(add ? to_float(d) + sum : sum);
  }
}

}  // namespace

void linear_dgrad(Context&, Tensor dx, Tensor dy, const LinearWeight& w, Accumulate accumulate) {
  std::vector<float> d = floats_of(dy), weights(size_t(w.out * w.in));
  if (w.is_packed()) {
    std::vector<uint8_t> codes(size_t(w.out * w.in / 2)), scales(size_t(w.out * w.in / 16));
    unpack_nvfp4(w.packed.as<uint8_t>(), w.in, 0, w.out, codes.data(), scales.data());
    dequantize_rows(codes.data(), scales.data(), w.out, w.in, 1.0f, weights.data());
  } else {
    rows_to_float(w.dense, weights.data(), 0, w.out);
  }
  std::vector<float> sums(static_cast<size_t>(w.in));
  for (int64_t n = 0; n < dy.dim(0); ++n) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t r = 0; r < w.out; ++r) {
      const float g = w.row_scale ? w.row_scale.as<float>()[r] : 1.0f;
      const float v = d[size_t(n * w.out + r)] * g;
      for (int64_t k = 0; k < w.in; ++k) sums[size_t(k)] += v * weights[size_t(r * w.in + k)];
    }
    for (int64_t k = 0; k < w.in; ++k) {
      const int64_t at = n * dx.row_stride + k;
      float sum = sums[size_t(k)];
      if (dx.dtype == DType::bf16 && accumulate == Accumulate::yes) {
        sum += to_float(dx.as<bf16_t>()[at]);
        put(dx, at, sum, {});
      } else {
        put(dx, at, sum, {.accumulate = accumulate});
      }
    }
  }
}

void linear_wgrad(Context&, Tensor dw, Tensor dy, Tensor x, const GradWrite& write) {
  const std::vector<float> d = floats_of(dy), v = floats_of(x);
  const int64_t rows = dw.dim(0), in = dw.dim(1);
  std::vector<float> sums(static_cast<size_t>(in));
  for (int64_t r = 0; r < rows; ++r) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t n = 0; n < x.dim(0); ++n) {
      const float a = d[size_t(n * rows + r)];
      for (int64_t k = 0; k < in; ++k) sums[size_t(k)] += a * v[size_t(n * in + k)];
    }
    for (int64_t k = 0; k < in; ++k) put(dw, r * in + k, sums[size_t(k)], write);
  }
}

}  // namespace nibble::cpu

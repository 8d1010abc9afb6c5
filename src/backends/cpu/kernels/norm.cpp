// SPDX-License-Identifier: MIT
// RMS norm and rotary embedding, alone and fused. The fused forms round to the storage type where
// the plain ones would have stored, so they give the same bits.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cmath>

#include "backends/cpu/simd/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// 1 / sqrt(mean square + eps); lanes first, then across, whatever the row.
template <class T>
HWY_NOINLINE float inverse_rms(const T* x, int64_t n, float eps) {
  VF even = hn::Zero(DF()), odd = even;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const VF a = load(x + i), b = load(x + i + kLanes);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  if (i + kLanes <= n) {
    const VF a = load(x + i);
    even = hn::MulAdd(a, a, even);
    i += kLanes;
  }
  if (i < n) {
    const VF b = load_tail(x + i, n - i);
    odd = hn::MulAdd(b, b, odd);
  }
  return 1.0f / std::sqrt(sum_lanes(hn::Add(even, odd)) / float(n) + eps);
}

template <class T>
HWY_NOINLINE float norm_row(T* out, const T* x, const float* w, int64_t n, float eps) {
  const float r = inverse_rms(x, n, eps);
  const VF scale = hn::Set(DF(), r);
  map(
      out, n, [scale](VF v, VF g) HWY_ATTR { return hn::Mul(hn::Mul(v, scale), g); }, x, w);
  return r;
}

void norm_rows(const Tensor& out, float* rstd, const Tensor& x, const float* w, float eps,
               int64_t heads, int64_t width, int64_t begin, int64_t end) {
  with_type(x.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t h = 0; h < heads; ++h) {
        const float r =
            norm_row(row<T>(out, n) + h * width, row<T>(x, n) + h * width, w, width, eps);
        if (rstd) rstd[n * heads + h] = r;
      }
    }
  });
}

void add_norm_rows(const Tensor& out, float* rstd, const Tensor& sum, const Tensor& a,
                   const Tensor& b, const float* w, float eps, int64_t begin, int64_t end) {
  with_type(a.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const int64_t width = a.shape[1];
    for (int64_t n = begin; n < end; ++n) {
      T* s = row<T>(sum, n);
      map(
          s, width, [](VF x, VF y) HWY_ATTR { return hn::Add(x, y); }, row<T>(a, n), row<T>(b, n));
      const float r = norm_row(row<T>(out, n), s, w, width, eps);
      if (rstd) rstd[n] = r;
    }
  });
}

void rope_rows(const Tensor& out, const Tensor& x, const float* table, float sign, int64_t begin,
               int64_t end) {
  with_type(x.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const int64_t heads = x.shape[1], width = x.shape[2], half = width / 2;
    for (int64_t n = begin; n < end; ++n) {
      const float* cos = table + n * width;
      for (int64_t h = 0; h < heads; ++h) {
        rotate(row<T>(out, n) + h * width, row<T>(x, n) + h * width, cos, cos + half, half, sign,
               [](VF v, int64_t, int64_t) HWY_ATTR { return v; });
      }
    }
  });
}

void norm_rope_rows(const Tensor& out, float* rstd, const Tensor& x, const float* w,
                    const float* table, float eps, int64_t begin, int64_t end) {
  with_type(x.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const int64_t heads = x.shape[1], width = x.shape[2], half = width / 2;
    for (int64_t n = begin; n < end; ++n) {
      const float* cos = table + n * width;
      for (int64_t h = 0; h < heads; ++h) {
        const T* in = row<T>(x, n) + h * width;
        const float r = inverse_rms(in, width, eps);
        const VF scale = hn::Set(DF(), r);
        const auto normed = [&](VF v, int64_t i, int64_t count) HWY_ATTR {
          const VF g = count == kLanes ? load(w + i) : load_tail(w + i, count);
          return rounded<T>(hn::Mul(hn::Mul(v, scale), g));
        };
        rotate(row<T>(out, n) + h * width, in, cos, cos + half, half, 1.0f, normed);
        if (rstd) rstd[n * heads + h] = r;
      }
    }
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(norm_rows);
HWY_EXPORT(add_norm_rows);
HWY_EXPORT(rope_rows);
HWY_EXPORT(norm_rope_rows);

void rms_norm(Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) {
  const int64_t width = x.cols(), heads = width > 0 ? x.inner() / width : 0;
  const FloatInput weight(c, w);
  FloatOutput r(c, rstd);
  for_rows(c.pool, x.dim(0), x.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(norm_rows)
    (out, r.data(), x, weight.data(), float(eps), heads, width, begin, end);
  });
  r.finish();
}

void add_rms_norm(Context& c, Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                  double eps) {
  const FloatInput weight(c, w);
  FloatOutput r(c, rstd);
  for_rows(c.pool, a.dim(0), a.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(add_norm_rows)
    (out, r.data(), sum, a, b, weight.data(), float(eps), begin, end);
  });
  r.finish();
}

void rope_table(Context& c, Tensor table, Tensor positions, const RopeFrequencies& f) {
  const int64_t width = table.dim(1), half = width / 2;
  FloatOutput out(c, table);
  for (int64_t i = 0; i < half; ++i) {
    for (int64_t n = 0; n < table.dim(0); ++n) {
      const double angle = positions.as<int32_t>()[n] * f.turns[size_t(i)];
      float* t = out.data() + n * width;
      t[i] = float(f.factor * std::cos(angle));
      t[half + i] = float(f.factor * std::sin(angle));
    }
  }
  out.finish();
}

void rope(Context& c, Tensor out, Tensor x, Tensor table, Rotation rotation) {
  const float sign = rotation == Rotation::forward ? 1.0f : -1.0f;
  const FloatInput angles(c, table);
  for_rows(c.pool, x.dim(0), x.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(rope_rows)(out, x, angles.data(), sign, begin, end);
  });
}

void norm_rope(Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table, double eps) {
  const FloatInput weight(c, w), angles(c, table);
  FloatOutput r(c, rstd);
  for_rows(c.pool, x.dim(0), 2 * x.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(norm_rope_rows)
    (out, r.data(), x, weight.data(), angles.data(), float(eps), begin, end);
  });
  r.finish();
}

}  // namespace nibble::cpu
#endif

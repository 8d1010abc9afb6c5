// SPDX-License-Identifier: MIT
// Dense f32, bf16 or f16 weights times float activations: dot products along K, one vector
// accumulator per output element, summed across its lanes at the end.
#include "backends/cpu/kernels/linear.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/linear_dense.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

HWY_NOINLINE void write_one(const LinearOutput& o, int64_t n, int64_t r, float value) {
  if (o.row_scale) value *= o.row_scale[r];
  with_type(o.out.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    if constexpr (std::is_same_v<T, float>) {
      row<float>(o.out, n)[r] = value;
    } else {
      store_tail(hn::Set(DF(), value), row<T>(o.out, n) + r, 1);
    }
  });
}

// R rows of w against T tokens.
template <class W, int R, int T>
HWY_NOINLINE void block(const LinearOutput& o, const FloatRows& x, const W* w, int64_t r0,
                        int64_t n0) {
  const DF df;
  const int64_t width = x.width;
  const float* xs = x.data + n0 * x.stride;
  VF acc[R][T];
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) acc[r][t] = hn::Zero(df);
  }
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    VF wv[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) wv[r] = load(w + r * width + k);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const VF xv = load(xs + t * x.stride + k);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[r][t] = hn::MulAdd(wv[r], xv, acc[r][t]);
    }
  }
  if (k < width) {
    for (int t = 0; t < T; ++t) {
      const VF xv = load_tail(xs + t * x.stride + k, width - k);
      for (int r = 0; r < R; ++r) {
        acc[r][t] = hn::MulAdd(load_tail(w + r * width + k, width - k), xv, acc[r][t]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) write_one(o, n0 + t, r0 + r, sum_lanes(acc[r][t]));
  }
}

template <class W, int R>
HWY_INLINE void row_block(const LinearOutput& o, const FloatRows& x, const W* w, int64_t r0) {
  constexpr int kMany = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  int64_t n = 0;
  for (; n + kMany <= x.count; n += kMany) block<W, R, kMany>(o, x, w, r0, n);
  for (; n < x.count; ++n) block<W, R, 1>(o, x, w, r0, n);
}

void dense_row_range(const LinearOutput& o, const FloatRows& x, const Tensor& w, int64_t begin,
                     int64_t end) {
  with_type(w.dtype, [&](auto* t) {
    using W = std::remove_pointer_t<decltype(t)>;
    const W* data = reinterpret_cast<const W*>(w.data);
    int64_t r = begin;
    for (; r + 4 <= end; r += 4) row_block<W, 4>(o, x, data + r * x.width, r);
    for (; r < end; ++r) row_block<W, 1>(o, x, data + r * x.width, r);
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(dense_row_range);

void dense_rows(const LinearOutput& o, const FloatRows& x, const Tensor& w, int64_t row_begin,
                int64_t row_end) {
  HWY_DYNAMIC_DISPATCH(dense_row_range)(o, x, w, row_begin, row_end);
}

}  // namespace nibble::cpu
#endif

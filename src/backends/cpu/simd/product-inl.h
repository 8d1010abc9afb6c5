// SPDX-License-Identifier: MIT
// Matrix products of blocks that lie in the cache as floats or as pairs of bf16 (E of
// kernels/gemm_element-inl.h), where each group of rows needs only a part of the sum or of the
// columns, as below a causal mask.
#if defined(NIBBLE_CPU_SIMD_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_SIMD_PRODUCT_INL_H_
#undef NIBBLE_CPU_SIMD_PRODUCT_INL_H_
#else
#define NIBBLE_CPU_SIMD_PRODUCT_INL_H_
#endif

#include "backends/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// Rows and vectors of the accumulators that fit in the registers.
constexpr int kAccRows = 4;
constexpr int kAccVectors = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 4 : 2;

// A left operand: step k of row m is at data[m * row + k * column].
struct Left {
  const float* data;
  int64_t row, column;
};
// What a group of rows needs: steps [k0, k1) of the sum, the first `columns` columns.
struct Needed {
  int64_t k0, k1, columns;
};

// c[m][n] = start + sum over k in [k0, k1) of a(m, k) b[k][n], in this order whatever the tile.
template <class E, int M, int V, bool kAdd>
HWY_INLINE void product_tile(float* c, int64_t c_row, const Left& a, int64_t m0, const float* b,
                             int64_t b_row, int64_t k0, int64_t k1) {
  c += m0 * c_row;
  VF acc[M][V];
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < V; ++v) {
      acc[m][v] = kAdd ? load(c + m * c_row + v * kLanes) : hn::Zero(DF());
    }
  }
  const float* left = a.data + m0 * a.row + k0 * a.column;
  b += k0 * b_row;
  for (int64_t k = k0; k < k1; ++k, left += a.column, b += b_row) {
    VF x[V];
    NIBBLE_UNROLL(4)
    for (int v = 0; v < V; ++v) x[v] = load(b + v * kLanes);
    NIBBLE_UNROLL(4)
    for (int m = 0; m < M; ++m) {
      const VF y = hn::Set(DF(), left[m * a.row]);
      NIBBLE_UNROLL(4)
      for (int v = 0; v < V; ++v) acc[m][v] = E::multiply_add(y, x[v], acc[m][v]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < V; ++v) store(acc[m][v], c + m * c_row + v * kLanes);
  }
}

// All rows [m0, m1) for V vectors of columns from `column` on; half of them where that is enough.
template <class E, int V, bool kAdd, class NeededBy>
HWY_INLINE void product_panel(float* c, int64_t c_row, int64_t m0, int64_t m1, const Left& a,
                              const float* b, int64_t b_row, int64_t column, NeededBy needed) {
  const auto rows = [&](int64_t m, auto tile) HWY_ATTR {
    constexpr int M = decltype(tile)::value;
    const Needed n = needed(m, m + M - 1);
    const int64_t left = n.columns - column;
    if constexpr (V > 2) {
      if (left <= 2 * kLanes) {
        if (left > 0) product_tile<E, M, 2, kAdd>(c, c_row, a, m, b, b_row, n.k0, n.k1);
        return;
      }
    }
    if (left > 0) product_tile<E, M, V, kAdd>(c, c_row, a, m, b, b_row, n.k0, n.k1);
  };
  int64_t m = m0;
  for (; m + kAccRows <= m1; m += kAccRows) rows(m, std::integral_constant<int, kAccRows>());
  for (; m < m1; ++m) rows(m, std::integral_constant<int, 1>());
}

// Rows [m0, m1) of c, `vectors` vectors of columns each; needed(m, last) tells what of it. The
// columns are the outer loop: a panel of b stays in the first-level cache while all rows pass.
template <class E, bool kAdd, class NeededBy>
HWY_NOINLINE void product(float* c, int64_t c_row, int64_t m0, int64_t m1, int64_t vectors,
                          const Left& a, const float* b, int64_t b_row, NeededBy needed) {
  int64_t v = 0;
  for (; v + kAccVectors <= vectors; v += kAccVectors) {
    const int64_t at = v * kLanes;
    product_panel<E, kAccVectors, kAdd>(c + at, c_row, m0, m1, a, b + at, b_row, at, needed);
  }
  if constexpr (kAccVectors > 2) {
    if (v + 2 <= vectors) {
      const int64_t at = v * kLanes;
      product_panel<E, 2, kAdd>(c + at, c_row, m0, m1, a, b + at, b_row, at, needed);
      v += 2;
    }
  }
  for (; v < vectors; ++v) {
    const int64_t at = v * kLanes;
    product_panel<E, 1, kAdd>(c + at, c_row, m0, m1, a, b + at, b_row, at, needed);
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

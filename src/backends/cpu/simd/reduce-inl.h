// SPDX-License-Identifier: MIT
// The largest element of a row, for argmax and softmax.
#if defined(NIBBLE_CPU_SIMD_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_SIMD_REDUCE_INL_H_
#undef NIBBLE_CPU_SIMD_REDUCE_INL_H_
#else
#define NIBBLE_CPU_SIMD_REDUCE_INL_H_
#endif

#include "backends/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

HWY_INLINE VF minus_infinity() { return hn::Set(DF(), -__builtin_inff()); }

// n < kLanes elements, the rest -infinity.
template <class T>
HWY_INLINE VF load_tail_low(const T* p, int64_t n) {
  return hn::IfThenElse(hn::FirstN(DF(), size_t(n)), load_tail(p, n), minus_infinity());
}
HWY_INLINE VF without_nan(VF v) { return hn::IfThenElse(hn::IsNaN(v), minus_infinity(), v); }

// Largest element; NaN counts as -infinity.
template <class T>
HWY_NOINLINE float row_max(const T* x, int64_t n) {
  VF m = minus_infinity();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) m = hn::Max(m, without_nan(load(x + i)));
  if (i < n) m = hn::Max(m, without_nan(load_tail_low(x + i, n - i)));
  return max_lanes(m);
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: MIT
// Ops over the vocabulary: argmax and cross entropy.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/logits.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cmath>

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

// Index of the first element equal to `value`; 0 when there is none.
template <class T>
HWY_NOINLINE int64_t first_equal(const T* x, int64_t n, float value) {
  const VF v = hn::Set(DF(), value);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const intptr_t k = hn::FindFirstTrue(DF(), hn::Eq(load(x + i), v));
    if (k >= 0) return i + k;
  }
  if (i < n) {
    const auto hit = hn::And(hn::Eq(load_tail(x + i, n - i), v), hn::FirstN(DF(), size_t(n - i)));
    const intptr_t k = hn::FindFirstTrue(DF(), hit);
    if (k >= 0) return i + k;
  }
  return 0;
}

void argmax_rows(int32_t* out, const Tensor& logits, int64_t begin, int64_t end) {
  with_type(logits.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    for (int64_t n = begin; n < end; ++n) {
      const T* x = row<T>(logits, n);
      // A row of -infinities and NaNs has no winner: the first -infinity is as good as 0.
      const float largest = row_max(x, logits.shape[1]);
      out[n] = largest == -__builtin_inff() ? 0 : int32_t(first_equal(x, logits.shape[1], largest));
    }
  });
}

// Sum of exp(x - m). Runs of 1024 in fp32 lanes, their sums in double: over 150,000 terms fp32
// alone would lose two digits.
template <class T>
HWY_NOINLINE double exp_sum(const T* x, int64_t n, float m) {
  constexpr int64_t kRun = 1024;
  const VF shift = hn::Set(DF(), m);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = HWY_MIN(n, begin + kRun);
    VF sum = hn::Zero(DF());
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) sum = hn::Add(sum, exp(hn::Sub(load(x + i), shift)));
    if (i < end) sum = hn::Add(sum, exp(hn::Sub(load_tail_low(x + i, end - i), shift)));
    total += double(sum_lanes(sum));
  }
  return total;
}

void cross_entropy_rows(float* loss, const Tensor& logits, const int32_t* targets, int64_t begin,
                        int64_t end) {
  with_type(logits.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    for (int64_t n = begin; n < end; ++n) {
      float value = 0;
      if (targets[n] >= 0) {
        const T* x = row<T>(logits, n);
        const float m = row_max(x, logits.shape[1]);
        const double sum = exp_sum(x, logits.shape[1], m);
        const float z = hn::GetLane(load_tail(x + targets[n], 1));
        value = float(std::log(sum) + double(m) - double(z));
      }
      loss[n] = value;
    }
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(argmax_rows);
HWY_EXPORT(cross_entropy_rows);

void argmax(ThreadPool& pool, Tensor out, Tensor logits) {
  for_rows(pool, logits.dim(0), logits.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(argmax_rows)(out.as<int32_t>(), logits, begin, end);
  });
}

void cross_entropy(Context& c, Tensor loss, Tensor logits, Tensor targets) {
  FloatOutput values(c, loss);
  for_rows(c.pool, logits.dim(0), 4 * logits.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(cross_entropy_rows)
    (values.data(), logits, targets.as<int32_t>(), begin, end);
  });
  values.finish();
}

}  // namespace nibble::cpu
#endif

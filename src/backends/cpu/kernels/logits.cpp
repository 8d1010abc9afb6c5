// SPDX-License-Identifier: MIT
// argmax; the loss is in loss.cpp.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/logits.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/simd/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

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

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(argmax_rows);

void argmax(ThreadPool& pool, Tensor out, Tensor logits) {
  for_rows(pool, logits.dim(0), logits.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(argmax_rows)(out.as<int32_t>(), logits, begin, end);
  });
}

}  // namespace nibble::cpu
#endif

// SPDX-License-Identifier: MIT
// KL(teacher || model) of rows over a piece of the vocabulary, and its gradient, in one pass.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/divergence.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cmath>

#include "backends/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// What one row's softmax is made from: by the same operations for both models, so that equal
// logits have equal bits.
struct SoftmaxRow {
  VF largest, inverse;
  double log_sum;
  explicit HWY_INLINE SoftmaxRow(const float* stats)
      : largest(hn::Set(DF(), stats[0])),
        inverse(hn::Set(DF(), float(1.0 / double(stats[1])))),
        log_sum(std::log(double(stats[1]))) {}
  HWY_INLINE VF share(VF from_largest) const { return hn::Mul(exp(from_largest), inverse); }
};

// The sum of q (log q - log p) and, unless `out` is null, (p - q) * scale. Runs of 1024 in fp32
// lanes, their sums in double, as the sums of softmax_stats are made.
template <class Out, class In>
HWY_NOINLINE double divergence_row(Out* out, const In* x, const float* stats, const In* teacher,
                                   const float* teacher_stats, int64_t width, double scale) {
  constexpr int64_t kRun = 1024;
  const DF df;
  const SoftmaxRow own(stats), other(teacher_stats);
  const VF gap = hn::Set(df, float(other.log_sum - own.log_sum));
  const VF zero = hn::Zero(df), factor = hn::Set(df, float(scale));
  VF sum = zero;
  const auto step = [&](VF z, VF z_teacher, VF* gradient) HWY_ATTR {
    const VF a = hn::Sub(z_teacher, other.largest), b = hn::Sub(z, own.largest);
    const VF q = other.share(a), p = own.share(b);
    *gradient = hn::Mul(hn::Sub(p, q), factor);
    // What the teacher never says adds nothing, whatever its logarithm.
    const VF term = hn::Mul(q, hn::Sub(hn::Sub(a, b), gap));
    return hn::IfThenElse(hn::Eq(q, zero), zero, term);
  };
  double total = 0;
  for (int64_t begin = 0; begin < width; begin += kRun) {
    const int64_t end = HWY_MIN(width, begin + kRun);
    sum = zero;
    VF gradient = zero;
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      sum = hn::Add(sum, step(load(x + i), load(teacher + i), &gradient));
      if (out) store(gradient, out + i);
    }
    if (i < end) {
      const VF term = step(load_tail(x + i, end - i), load_tail(teacher + i, end - i), &gradient);
      sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(df, size_t(end - i)), term));
      if (out) store_tail(gradient, out + i, end - i);
    }
    total += double(sum_lanes(sum));
  }
  return total;
}

// `before` holds the sums of earlier pieces, or null; may be `loss` itself.
void divergence_rows(float* loss, const float* before, const Tensor& dlogits, const Tensor& logits,
                     const float* stats, const Tensor& teacher, const float* teacher_stats,
                     double scale, int64_t begin, int64_t end) {
  const int64_t width = logits.shape[1];
  with_type(dlogits ? dlogits.dtype : DType::f32, [&](auto* o) {
    using Out = std::remove_pointer_t<decltype(o)>;
    with_type(logits.dtype, [&](auto* i) {
      using In = std::remove_pointer_t<decltype(i)>;
      for (int64_t n = begin; n < end; ++n) {
        const double sum =
            divergence_row(dlogits ? row<Out>(dlogits, n) : nullptr, row<In>(logits, n),
                           stats + 3 * n, row<In>(teacher, n), teacher_stats + 3 * n, width, scale);
        loss[n] = float((before ? double(before[n]) : 0.0) + sum);
      }
    });
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(divergence_rows);

void divergence(Context& c, Tensor loss, Tensor dlogits, Tensor logits, Tensor stats,
                Tensor teacher, Tensor teacher_stats, double scale, Accumulate accumulate) {
  const FloatInput before(c, loss), own(c, stats), other(c, teacher_stats);
  FloatOutput after(c, loss);
  const float* earlier = accumulate == Accumulate::yes ? before.data() : nullptr;
  for_rows(c.pool, logits.dim(0), 8 * logits.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(divergence_rows)
    (after.data(), earlier, dlogits, logits, own.data(), teacher, other.data(), scale, begin, end);
  });
  after.finish();
}

}  // namespace nibble::cpu
#endif

// SPDX-License-Identifier: MIT
// Cross entropy over a vocabulary that comes in pieces, and the L1 loss on hidden states.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/loss.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cmath>

#include "backends/cpu/simd/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

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

// `before` holds the stats of earlier pieces; null: this is the first. May be `stats` itself.
void stats_rows(float* stats, const float* before, const Tensor& logits, const int32_t* targets,
                int64_t v_begin, int64_t begin, int64_t end) {
  with_type(logits.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const int64_t width = logits.shape[1];
    for (int64_t n = begin; n < end; ++n) {
      const T* x = row<T>(logits, n);
      float m = row_max(x, width), z = 0;
      double earlier = 0;
      if (before) {
        const float* b = before + 3 * n;
        m = HWY_MAX(m, b[0]);
        // Nothing but -infinity so far: a sum of zero, or of NaN.
        earlier = b[0] == -__builtin_inff() ? b[1] : b[1] * std::exp(double(b[0]) - double(m));
        z = b[2];
      }
      const double sum = earlier + exp_sum(x, width, m == -__builtin_inff() ? 0.0f : m);
      const int64_t target = targets[n] - v_begin;
      if (targets[n] >= 0 && target >= 0 && target < width) {
        z = hn::GetLane(load_tail(x + target, 1));
      }
      stats[3 * n] = m;
      stats[3 * n + 1] = float(sum);
      stats[3 * n + 2] = z;
    }
  });
}

// One row that has a target; `target` may lie outside of this piece.
template <class Out, class In>
HWY_NOINLINE void softmax_gradient(Out* out, const In* x, int64_t width, const float* stats,
                                   int64_t target, double scale) {
  const VF shift = hn::Set(DF(), stats[0]);
  const double inverse = 1.0 / double(stats[1]);
  const VF factor = hn::Set(DF(), float(scale * inverse));
  const bool here = target >= 0 && target < width;
  // Before x is overwritten.
  const VF at_target = here ? load_tail(x + target, 1) : hn::Zero(DF());
  map(
      out, width, [=](VF v) HWY_ATTR { return hn::Mul(exp(hn::Sub(v, shift)), factor); }, x);
  if (here) {
    const double p = double(hn::GetLane(exp(hn::Sub(at_target, shift)))) * inverse;
    store_tail(hn::Set(DF(), float((p - 1.0) * scale)), out + target, 1);
  }
}

void cross_entropy_back_rows(const Tensor& dlogits, const Tensor& logits, const float* stats,
                             const int32_t* targets, int64_t v_begin, double scale, int64_t begin,
                             int64_t end) {
  const int64_t width = logits.shape[1];
  with_type(dlogits.dtype, [&](auto* o) {
    using Out = std::remove_pointer_t<decltype(o)>;
    with_type(logits.dtype, [&](auto* i) {
      using In = std::remove_pointer_t<decltype(i)>;
      for (int64_t n = begin; n < end; ++n) {
        if (targets[n] < 0) {
          std::memset(static_cast<void*>(row<Out>(dlogits, n)), 0, size_t(width) * sizeof(Out));
        } else {
          softmax_gradient(row<Out>(dlogits, n), row<In>(logits, n), width, stats + 3 * n,
                           targets[n] - v_begin, scale);
        }
      }
    });
  });
}

// Copies columns [begin, begin + n) of row i, converting.
HWY_INLINE void columns_to_float(float* out, const Tensor& t, int64_t i, int64_t begin, int64_t n) {
  with_type(t.dtype, [&](auto* e) {
    convert(out, row<std::remove_pointer_t<decltype(e)>>(t, i) + begin, n);
  });
}

// Sum of |h - e|, and h becomes its sign times `step`.
HWY_NOINLINE float absolute_difference(float* h, const float* e, int64_t n, float step) {
  const DF df;
  const VF zero = hn::Zero(df), up = hn::Set(df, step), down = hn::Set(df, -step);
  VF sum = zero;
  for (int64_t i = 0; i < n; i += kLanes) {
    const VF d = hn::Sub(load(h + i), load(e + i));
    sum = hn::Add(sum, hn::Abs(d));
    store(hn::IfThenElse(hn::Gt(d, zero), up, hn::IfThenElse(hn::Lt(d, zero), down, zero)), h + i);
  }
  return sum_lanes(sum);
}

void l1_rows(float* loss, const Tensor& dh, const Tensor& h, const Tensor& table,
             const int32_t* targets, double scale, int64_t begin, int64_t end) {
  constexpr int64_t kRun = 256;
  const int64_t width = h.shape[1];
  const float step = float(scale / double(width));
  alignas(64) float a[kRun], b[kRun];
  for (int64_t n = begin; n < end; ++n) {
    double total = 0;
    for (int64_t c = 0; c < width; c += kRun) {
      const int64_t count = HWY_MIN(kRun, width - c);
      std::memset(a, 0, sizeof(a)), std::memset(b, 0, sizeof(b));
      if (targets[n] >= 0) {
        columns_to_float(a, h, n, c, count);
        columns_to_float(b, table, targets[n], c, count);
        total += double(absolute_difference(a, b, (count + kLanes - 1) / kLanes * kLanes, step));
      }
      with_type(dh.dtype, [&](auto* t) {
        convert(row<std::remove_pointer_t<decltype(t)>>(dh, n) + c, a, count);
      });
    }
    loss[n] = float(total / double(width));
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(stats_rows);
HWY_EXPORT(cross_entropy_back_rows);
HWY_EXPORT(l1_rows);

void softmax_stats(Context& c, Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                   Accumulate accumulate) {
  const FloatInput before(c, stats);
  FloatOutput after(c, stats);
  const float* earlier = accumulate == Accumulate::yes ? before.data() : nullptr;
  for_rows(c.pool, logits.dim(0), 4 * logits.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(stats_rows)
    (after.data(), earlier, logits, targets.as<int32_t>(), v_begin, begin, end);
  });
  after.finish();
}

void cross_entropy(Context& c, Tensor loss, Tensor stats, Tensor targets) {
  const FloatInput s(c, stats);
  FloatOutput values(c, loss);
  for (int64_t n = 0; n < stats.dim(0); ++n) {
    const float* row = s.data() + 3 * n;
    const double value = std::log(double(row[1])) + double(row[0]) - double(row[2]);
    values.data()[n] = targets.as<int32_t>()[n] < 0 ? 0.0f : float(value);
  }
  values.finish();
}

void cross_entropy_back(Context& c, Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                        int64_t v_begin, double scale) {
  const FloatInput s(c, stats);
  for_rows(c.pool, logits.dim(0), 4 * logits.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(cross_entropy_back_rows)
    (dlogits, logits, s.data(), targets.as<int32_t>(), v_begin, scale, begin, end);
  });
}

void l1_loss(Context& c, Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
             double scale) {
  FloatOutput values(c, loss);
  for_rows(c.pool, h.dim(0), 2 * h.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(l1_rows)
    (values.data(), dh, h, table, targets.as<int32_t>(), scale, begin, end);
  });
  values.finish();
}

}  // namespace nibble::cpu
#endif

// SPDX-License-Identifier: MIT
// Biases of heads: added alone or on the way into the rotation, in fp32, and their gradient.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/bias.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/simd/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

void add_bias_rows(const Tensor& out, const Tensor& x, const float* bias, int64_t begin,
                   int64_t end) {
  with_type(x.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    for (int64_t n = begin; n < end; ++n) {
      map(
          row<T>(out, n), x.inner(), [](VF v, VF b) HWY_ATTR { return hn::Add(v, b); },
          row<T>(x, n), bias);
    }
  });
}

void bias_rope_rows(const Tensor& out, const Tensor& x, const float* bias, const float* table,
                    StillPairs still, int64_t begin, int64_t end) {
  with_type(x.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const int64_t heads = x.shape[1], width = x.shape[2], half = width / 2;
    const VF first_still = hn::Set(DF(), float(still.begin)), factor = hn::Set(DF(), still.factor);
    for (int64_t n = begin; n < end; ++n) {
      const float* cos = table + n * width;
      for (int64_t h = 0; h < heads; ++h) {
        const float* b = bias + h * width;
        const auto biased = [&](VF v, int64_t i, int64_t count) HWY_ATTR {
          return hn::Add(v, count == kLanes ? load(b + i) : load_tail(b + i, count));
        };
        const auto without_still = [&](VF v, int64_t i, int64_t pair, int64_t count) HWY_ATTR {
          if (pair + count <= still.begin) return v;
          const auto is_still = hn::Ge(hn::Iota(DF(), float(pair)), first_still);
          const VF part = hn::Mul(factor, count == kLanes ? load(b + i) : load_tail(b + i, count));
          return hn::Sub(v, hn::IfThenElseZero(is_still, part));
        };
        rotate(row<T>(out, n) + h * width, row<T>(x, n) + h * width, cos, cos + half, half, 1.0f,
               biased, without_still);
      }
    }
  });
}

// Columns [begin, end): sixteen rows are summed, then the sums.
void bias_back_columns(float* db, const Tensor& dy, bool accumulate, int64_t begin, int64_t end) {
  constexpr int64_t kRows = 16;
  with_type(dy.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const int64_t rows = dy.shape[0];
    for (int64_t i = begin; i < end; i += kLanes) {
      const int64_t count = HWY_MIN(int64_t(kLanes), end - i);
      VF total = hn::Zero(DF());
      for (int64_t first = 0; first < rows; first += kRows) {
        VF sum = hn::Zero(DF());
        for (int64_t n = first; n < HWY_MIN(rows, first + kRows); ++n) {
          const T* p = row<T>(dy, n) + i;
          sum = hn::Add(sum, count == kLanes ? load(p) : load_tail(p, count));
        }
        total = hn::Add(total, sum);
      }
      if (accumulate) total = hn::Add(load_tail(db + i, count), total);
      store_tail(total, db + i, count);
    }
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cstring>

namespace nibble::cpu {

HWY_EXPORT(add_bias_rows);
HWY_EXPORT(bias_rope_rows);
HWY_EXPORT(bias_back_columns);

void add_bias(Context& c, Tensor out, Tensor x, Tensor bias) {
  const FloatInput b(c, bias);
  for_rows(c.pool, x.dim(0), x.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(add_bias_rows)(out, x, b.data(), begin, end);
  });
}

void bias_rope(Context& c, Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still) {
  const FloatInput b(c, bias), angles(c, table);
  for_rows(c.pool, x.dim(0), 2 * x.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(bias_rope_rows)(out, x, b.data(), angles.data(), still, begin, end);
  });
}

void bias_back(Context& c, Tensor db, Tensor dy, Accumulate accumulate) {
  const FloatInput before(c, db);
  FloatOutput after(c, db);
  const bool add = accumulate == Accumulate::yes;
  if (add && after.data() != before.data()) {
    std::memcpy(after.data(), before.data(), size_t(db.numel()) * sizeof(float));
  }
  // Whole vectors of columns to each thread.
  constexpr int64_t kColumns = 64;
  const int64_t width = dy.dim(1);
  for_rows(c.pool, (width + kColumns - 1) / kColumns, kColumns * dy.dim(0),
           [&](int64_t begin, int64_t end, int) {
             HWY_DYNAMIC_DISPATCH(bias_back_columns)
             (after.data(), dy, add, begin * kColumns, std::min(width, end * kColumns));
           });
  after.finish();
}

}  // namespace nibble::cpu
#endif

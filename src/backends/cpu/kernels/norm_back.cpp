// SPDX-License-Identifier: MIT
// Gradients of RMS norm, alone and behind a rotation. The gradient of the weight is summed within
// chunks of rows that only the shape decides, then over the chunks in order.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/norm_back.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/simd/rotate-inl.h"

#ifndef NIBBLE_CPU_NORM_BACK_TYPES
#define NIBBLE_CPU_NORM_BACK_TYPES
namespace nibble::cpu {

struct NormBack {
  Tensor dx, dy, x, base;  // base may be empty
  const float *rstd, *w;
  const float* table;  // null: no rotation; then dy is of dx's type
  int64_t heads, width;
};

}  // namespace nibble::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// Sum of dy w x over one row, and dw += dy x r unless dw is null.
template <class G, class T>
HWY_NOINLINE float norm_dot(float* dw, const G* dy, const T* x, const float* w, int64_t n,
                            float r) {
  const VF scale = hn::Set(DF(), r);
  VF sum = hn::Zero(DF());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VF gx = hn::Mul(load(dy + i), load(x + i));
    sum = hn::MulAdd(gx, load(w + i), sum);
    if (dw) store(hn::MulAdd(gx, scale, load(dw + i)), dw + i);
  }
  if (i < n) {
    const int64_t left = n - i;
    const VF gx = hn::Mul(load_tail(dy + i, left), load_tail(x + i, left));
    sum = hn::MulAdd(gx, load_tail(w + i, left), sum);
    if (dw) store_tail(hn::MulAdd(gx, scale, load_tail(dw + i, left)), dw + i, left);
  }
  return sum_lanes(sum);
}

// y = x r w with r = (mean x^2 + eps)^(-1/2): dx = r (dy w - x r^2 mean(dy w x)).
template <class G, class T>
HWY_NOINLINE void norm_back_row(T* dx, float* dw, const G* dy, const T* x, const float* w,
                                const T* base, int64_t n, float r) {
  const float c = norm_dot(dw, dy, x, w, n, r) / float(n) * (r * r);
  const VF scale = hn::Set(DF(), r), share = hn::Set(DF(), c);
  const auto through = [=](VF g, VF v, VF weight) HWY_ATTR {
    return hn::Mul(hn::NegMulAdd(v, share, hn::Mul(g, weight)), scale);
  };
  if (base) {
    map(
        dx, n,
        [=](VF g, VF v, VF weight, VF b) HWY_ATTR { return hn::Add(b, through(g, v, weight)); }, dy,
        x, w, base);
  } else {
    map(dx, n, through, dy, x, w);
  }
}

// Rows [begin, end) of dimension 0; dw [width] is added to. rotated: scratch [width].
void norm_back_rows(const NormBack& a, float* dw, float* rotated, int64_t begin, int64_t end) {
  with_type(a.x.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const int64_t width = a.width, half = width / 2;
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t h = 0; h < a.heads; ++h) {
        T* dx = row<T>(a.dx, n) + h * width;
        const T* x = row<T>(a.x, n) + h * width;
        const T* base = a.base.data ? row<T>(a.base, n) + h * width : nullptr;
        const float r = a.rstd[n * a.heads + h];
        if (a.table) {
          const float* cos = a.table + n * width;
          rotate(rotated, row<T>(a.dy, n) + h * width, cos, cos + half, half, -1.0f,
                 [](VF v, int64_t, int64_t) HWY_ATTR { return v; });
          // As if it had been stored in between.
          map(
              rotated, width, [](VF v) HWY_ATTR { return rounded<T>(v); }, rotated);
          norm_back_row(dx, dw, rotated, x, a.w, base, width, r);
        } else if (a.dy.dtype == DType::f32) {
          norm_back_row(dx, dw, row<float>(a.dy, n) + h * width, x, a.w, base, width, r);
        } else {
          norm_back_row(dx, dw, row<T>(a.dy, n) + h * width, x, a.w, base, width, r);
        }
      }
    }
  });
}

// out = start (null: 0) + the sum of `chunks` rows of `partial`; columns [begin, end).
void sum_chunks(float* out, const float* partial, int64_t chunks, int64_t width, const float* start,
                int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t n = HWY_MIN(int64_t(kLanes), end - i);
    VF sum = hn::Zero(DF());
    for (int64_t k = 0; k < chunks; ++k) {
      const float* p = partial + k * width + i;
      sum = hn::Add(sum, n == kLanes ? load(p) : load_tail(p, n));
    }
    if (start) sum = hn::Add(load_tail(start + i, n), sum);
    store_tail(sum, out + i, n);
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cstring>

namespace nibble::cpu {

HWY_EXPORT(norm_back_rows);
HWY_EXPORT(sum_chunks);

namespace {

// Chunks of 16 rows and more, at most 64 of them.
void run(Context& c, const NormBack& a, Tensor dw, Accumulate accumulate) {
  constexpr int64_t kRows = 16, kChunks = 64;
  const int64_t n = a.x.dim(0), width = a.width;
  const int64_t rows = std::max(kRows, (n + kChunks - 1) / kChunks);
  const int64_t chunks = (n + rows - 1) / rows, stride = (width + 15) / 16 * 16;
  float* partial = dw ? c.gradients.get_as<float>(size_t(chunks * stride)) : nullptr;
  float* scratch = c.thread_scratch.get_as<float>(size_t(stride * c.pool.size()));
  for_rows(c.pool, chunks, 4 * rows * a.x.inner(), [&](int64_t begin, int64_t end, int thread) {
    for (int64_t k = begin; k < end; ++k) {
      float* sum = dw ? partial + k * stride : nullptr;
      if (sum) std::memset(sum, 0, size_t(width) * sizeof(float));
      HWY_DYNAMIC_DISPATCH(norm_back_rows)
      (a, sum, scratch + thread * stride, k * rows, std::min(n, (k + 1) * rows));
    }
  });
  if (!dw) return;
  const FloatInput before(c, dw);
  FloatOutput after(c, dw);
  const float* start = accumulate == Accumulate::yes ? before.data() : nullptr;
  c.pool.parallel_for(width, 256, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(sum_chunks)(after.data(), partial, chunks, stride, start, begin, end);
  });
  after.finish();
}

}  // namespace

void rms_norm_back(Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                   Tensor base, Accumulate accumulate_dw) {
  const FloatInput r(c, rstd), weight(c, w);
  const int64_t width = x.cols(), heads = width > 0 ? x.inner() / width : 0;
  run(c, {dx, dy, x, base, r.data(), weight.data(), nullptr, heads, width}, dw, accumulate_dw);
}

void norm_rope_back(Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                    Tensor table, Accumulate accumulate_dw) {
  const FloatInput r(c, rstd), weight(c, w), angles(c, table);
  run(c, {dx, dy, x, {}, r.data(), weight.data(), angles.data(), x.dim(1), x.dim(2)}, dw,
      accumulate_dw);
}

}  // namespace nibble::cpu
#endif

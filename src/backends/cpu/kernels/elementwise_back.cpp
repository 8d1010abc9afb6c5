// SPDX-License-Identifier: MIT
// Gradients of SwiGLU, of the embedding and of gathered rows.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/elementwise_back.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/simd/moments-inl.h"
#include "backends/cpu/simd/philox-inl.h"

#ifndef NIBBLE_CPU_EMBED_BACK_TYPES
#define NIBBLE_CPU_EMBED_BACK_TYPES
namespace nibble::cpu {

constexpr int64_t kEmbedColumns = 256;  // summed at a time

struct EmbedBack {
  Tensor dtable, dx;
  const int32_t *ids, *order;
  GradWrite write;
};

}  // namespace nibble::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// out = silu(g) u with silu(g) = g s, s = 1 / (1 + e^-g): silu' = s (1 + g (1 - s)). s and 1 - s
// both come from e^-|g|, so that neither overflows or cancels.
HWY_INLINE void swiglu_gradient(VF d, VF g, VF u, VF* dg, VF* du) {
  const DF df;
  const VF one = hn::Set(df, 1.0f);
  const VF e = exp(hn::Neg(hn::Abs(g)));
  const VF large = hn::Div(one, hn::Add(one, e)), small = hn::Mul(e, large);
  const auto negative = hn::Lt(g, hn::Zero(df));
  const VF s = hn::IfThenElse(negative, small, large);
  const VF rest = hn::IfThenElse(negative, large, small);
  *dg = hn::Mul(hn::Mul(d, u), hn::Mul(s, hn::MulAdd(g, rest, one)));
  *du = hn::Mul(d, hn::Mul(g, s));
}

void swiglu_back_rows(const Tensor& dgate, const Tensor& dup, const Tensor& dout,
                      const Tensor& gate, const Tensor& up, int64_t begin, int64_t end) {
  with_type(dout.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const int64_t n = dout.shape[1];
    VF a, b;
    for (int64_t r = begin; r < end; ++r) {
      const T *d = row<T>(dout, r), *g = row<T>(gate, r), *u = row<T>(up, r);
      T *dg = row<T>(dgate, r), *du = row<T>(dup, r);
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) {
        swiglu_gradient(load(d + i), load(g + i), load(u + i), &a, &b);
        store(a, dg + i);
        store(b, du + i);
      }
      if (i < n) {
        const int64_t left = n - i;
        swiglu_gradient(load_tail(d + i, left), load_tail(g + i, left), load_tail(u + i, left), &a,
                        &b);
        store_tail(a, dg + i, left);
        store_tail(b, du + i, left);
      }
    }
  });
}

// Adds `sum` to the n <= kEmbedColumns bf16 elements at `to`, which are number `element` and on of
// their tensor. `sum` may be read up to the next whole vector.
HWY_NOINLINE void add_rounded(bf16_t* to, const float* sum, int64_t n, uint64_t element,
                              const PhiloxLanes& random) {
  constexpr uint64_t kStep = 2 * kLanes;
  alignas(64) uint32_t words[kEmbedColumns + 2 * kStep];
  const uint64_t first = element / kStep * kStep;
  for (uint64_t e = first; e < element + uint64_t(n); e += kStep) {
    VU low, high;
    random.words(e, &low, &high);
    hn::Store(low, DU(), words + (e - first));
    hn::Store(high, DU(), words + (e - first) + kLanes);
  }
  const uint32_t* bits = words + (element - first);
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t left = HWY_MIN(int64_t(kLanes), n - i);
    const VF x = hn::Add(left == kLanes ? load(to + i) : load_tail(to + i, left), load(sum + i));
    const VU noise = hn::And(hn::LoadU(DU(), bits + i), hn::Set(DU(), 0xffffu));
    alignas(64) bf16_t rounded[kLanes];
    hn::Store(high_halves(stochastic_bf16_high(x, noise)), D16(),
              reinterpret_cast<uint16_t*>(rounded));
    std::memcpy(to + i, rounded, size_t(left) * sizeof(bf16_t));
  }
}

// The runs of equal ids that begin at positions [begin, end) of the order, columns [c, c + n).
template <class G, class T>
HWY_NOINLINE void embed_back_runs(const EmbedBack& a, int64_t begin, int64_t end, int64_t c,
                                  int64_t n) {
  alignas(64) float sum[kEmbedColumns];
  const PhiloxLanes random(a.write.seed, a.write.stream);
  const int64_t all = a.dx.shape[0];
  const auto id_at = [&](int64_t i) { return a.ids[a.order[i]]; };
  for (int64_t i = begin; i < end; ++i) {
    const int32_t id = id_at(i);
    if (i > 0 && id_at(i - 1) == id) continue;
    convert(sum, row<T>(a.dx, a.order[i]) + c, n);
    for (int64_t j = i + 1; j < all && id_at(j) == id; ++j) {
      map(
          sum, n, [](VF s, VF x) HWY_ATTR { return hn::Add(s, x); }, sum,
          row<T>(a.dx, a.order[j]) + c);
    }
    G* to = row<G>(a.dtable, id) + c;
    if (a.write.accumulate == Accumulate::no) {
      convert(to, sum, n);
    } else if constexpr (std::is_same_v<G, bf16_t>) {
      const int64_t element = a.write.offset + id * a.dtable.shape[1] + c;
      add_rounded(to, sum, n, uint64_t(element), random);
    } else {
      map(
          to, n, [](VF x, VF s) HWY_ATTR { return hn::Add(x, s); }, to, sum);
    }
  }
}

void embed_back_block(const EmbedBack& a, int64_t begin, int64_t end, int64_t c, int64_t n) {
  with_type(a.dtable.dtype, [&](auto* g) {
    using G = std::remove_pointer_t<decltype(g)>;
    with_type(a.dx.dtype, [&](auto* t) {
      embed_back_runs<G, std::remove_pointer_t<decltype(t)>>(a, begin, end, c, n);
    });
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cstring>

namespace nibble::cpu {

HWY_EXPORT(swiglu_back_rows);
HWY_EXPORT(embed_back_block);

namespace {

void zero_rows(ThreadPool& pool, const Tensor& t) {
  const size_t e = dtype_bytes(t.dtype), bytes = size_t(t.inner()) * e;
  for_rows(pool, t.dim(0), t.inner(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      std::memset(t.data + size_t(i * t.row_stride) * e, 0, bytes);
    }
  });
}

}  // namespace

void swiglu_back(ThreadPool& pool, Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) {
  for_rows(pool, dout.dim(0), 4 * dout.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(swiglu_back_rows)(dgate, dup, dout, gate, up, begin, end);
  });
}

void embed_back(Context& c, Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                const GradWrite& write) {
  if (write.accumulate == Accumulate::no) zero_rows(c.pool, dtable);
  // Blocks of positions times blocks of columns: a token that fills half of the batch is one run,
  // whose columns still go to several threads.
  constexpr int64_t kPositions = 64;
  const int64_t n = dx.dim(0), width = dx.dim(1);
  const int64_t across = (width + kEmbedColumns - 1) / kEmbedColumns;
  const int64_t down = (n + kPositions - 1) / kPositions;
  const EmbedBack a{dtable, dx, ids.as<int32_t>(), order.as<int32_t>(), write};
  for_rows(c.pool, down * across, kPositions * kEmbedColumns, [&](int64_t begin, int64_t end, int) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t i = k / across * kPositions, column = k % across * kEmbedColumns;
      HWY_DYNAMIC_DISPATCH(embed_back_block)
      (a, i, std::min(n, i + kPositions), column, std::min(kEmbedColumns, width - column));
    }
  });
}

void scatter_rows(ThreadPool& pool, Tensor out, Tensor x, Tensor rows) {
  zero_rows(pool, out);
  const size_t e = dtype_bytes(x.dtype), bytes = size_t(x.inner()) * e;
  const int32_t* to = rows.as<int32_t>();
  for_rows(pool, x.dim(0), x.inner(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(out.data + size_t(to[i] * out.row_stride) * e,
                  x.data + size_t(i * x.row_stride) * e, bytes);
    }
  });
}

}  // namespace nibble::cpu
#endif

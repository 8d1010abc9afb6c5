// SPDX-License-Identifier: MIT
// Ops that look at one element or move whole rows: embed, gather, cache append, add, SwiGLU.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/elementwise.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/simd/vec-inl.h"
#include "quant/codec.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// out[i] = x[index[i]] for i in [begin, end), converting.
void take_rows(const Tensor& out, const Tensor& x, const int32_t* index, int64_t begin,
               int64_t end) {
  const int64_t n = out.shape[1] * out.shape[2] * out.shape[3];
  with_type(out.dtype, [&](auto* o) {
    using Out = std::remove_pointer_t<decltype(o)>;
    with_type(x.dtype, [&](auto* e) {
      using In = std::remove_pointer_t<decltype(e)>;
      for (int64_t i = begin; i < end; ++i) convert(row<Out>(out, i), row<In>(x, index[i]), n);
    });
  });
}

// A row of the FP8 cache.
template <class In>
HWY_NOINLINE void put_f8(uint8_t* out, const In* x, int64_t n) {
  constexpr int64_t kBlock = 64;
  float values[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = HWY_MIN(kBlock, n - i);
    convert(values, x + i, count);
    for (int64_t j = 0; j < count; ++j) out[i + j] = e4m3_encode(values[j]);
  }
}

// out[index[i]] = x[i].
void put_rows(const Tensor& out, const Tensor& x, const int32_t* index, int64_t begin,
              int64_t end) {
  const int64_t n = out.shape[1] * out.shape[2] * out.shape[3];
  if (out.dtype == DType::f8_e4m3) {
    with_type(x.dtype, [&](auto* e) {
      using In = std::remove_pointer_t<decltype(e)>;
      for (int64_t i = begin; i < end; ++i) put_f8(row<uint8_t>(out, index[i]), row<In>(x, i), n);
    });
    return;
  }
  with_type(out.dtype, [&](auto* o) {
    using Out = std::remove_pointer_t<decltype(o)>;
    with_type(x.dtype, [&](auto* e) {
      using In = std::remove_pointer_t<decltype(e)>;
      for (int64_t i = begin; i < end; ++i) convert(row<Out>(out, index[i]), row<In>(x, i), n);
    });
  });
}

void add_rows(const Tensor& out, const Tensor& a, const Tensor& b, int64_t begin, int64_t end) {
  const int64_t n = out.shape[1] * out.shape[2] * out.shape[3];
  with_type(out.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    for (int64_t i = begin; i < end; ++i) {
      map(
          row<T>(out, i), n, [](VF x, VF y) HWY_ATTR { return hn::Add(x, y); }, row<T>(a, i),
          row<T>(b, i));
    }
  });
}

// g / (1 + e^-g) through e^-|g|, which never overflows.
HWY_INLINE VF silu(VF g) {
  const DF df;
  const VF one = hn::Set(df, 1.0f);
  const VF e = exp(hn::Neg(hn::Abs(g)));
  const VF numerator = hn::IfThenElse(hn::Lt(g, hn::Zero(df)), hn::Mul(g, e), g);
  return hn::Div(numerator, hn::Add(one, e));
}

void swiglu_rows(const Tensor& out, const Tensor& gate, const Tensor& up, int64_t begin,
                 int64_t end) {
  with_type(out.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    for (int64_t i = begin; i < end; ++i) {
      map(
          row<T>(out, i), out.shape[1], [](VF g, VF u) HWY_ATTR { return hn::Mul(silu(g), u); },
          row<T>(gate, i), row<T>(up, i));
    }
  });
}

void exp_all(const float* x, float* out, int64_t n) {
  map(
      out, n, [](VF v) HWY_ATTR { return exp(v); }, x);
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace nibble::cpu {

HWY_EXPORT(take_rows);
HWY_EXPORT(put_rows);
HWY_EXPORT(add_rows);
HWY_EXPORT(swiglu_rows);
HWY_EXPORT(exp_all);

void copy_strided(Tensor dst, Tensor src) {
  const size_t e = dtype_bytes(dst.dtype);
  if (dst.contiguous() && src.contiguous()) {
    std::memmove(dst.data, src.data, dst.bytes());
    return;
  }
  for (int64_t i = 0; i < dst.dim(0); ++i) {
    std::memmove(dst.data + size_t(i * dst.row_stride) * e,
                 src.data + size_t(i * src.row_stride) * e, size_t(dst.inner()) * e);
  }
}

void embed(ThreadPool& pool, Tensor out, Tensor table, Tensor ids) {
  for_rows(pool, out.dim(0), out.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(take_rows)(out, table, ids.as<int32_t>(), begin, end);
  });
}

void gather_rows(ThreadPool& pool, Tensor out, Tensor x, Tensor rows) {
  for_rows(pool, out.dim(0), out.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(take_rows)(out, x, rows.as<int32_t>(), begin, end);
  });
}

void kv_append(ThreadPool& pool, KvView kv, Tensor k, Tensor v, Tensor slots) {
  if (kv.k.data == k.data && kv.v.data == v.data) return;
  for_rows(pool, k.dim(0), 2 * k.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(put_rows)(kv.k, k, slots.as<int32_t>(), begin, end);
    HWY_DYNAMIC_DISPATCH(put_rows)(kv.v, v, slots.as<int32_t>(), begin, end);
  });
}

void add(ThreadPool& pool, Tensor out, Tensor a, Tensor b) {
  for_rows(pool, out.dim(0), out.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(add_rows)(out, a, b, begin, end);
  });
}

void swiglu(ThreadPool& pool, Tensor out, Tensor gate, Tensor up) {
  // An exponential is worth several plain elements.
  for_rows(pool, out.dim(0), 4 * out.inner(), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(swiglu_rows)(out, gate, up, begin, end);
  });
}

void exp_floats(const float* x, float* out, int64_t n) { HWY_DYNAMIC_DISPATCH(exp_all)(x, out, n); }

void convert_elements(Tensor out, Tensor x) {
  const int32_t first = 0;
  HWY_DYNAMIC_DISPATCH(take_rows)
  (out.view({1, out.numel()}), x.view({1, x.numel()}), &first, 0, 1);
}

}  // namespace nibble::cpu
#endif

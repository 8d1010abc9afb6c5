// SPDX-License-Identifier: MIT
// Float vectors over the storage types: loads and stores that convert exactly (to nearest even on
// the way down), loops with a tail, fixed-order reductions and exp. Compiled once per target.
#if defined(NIBBLE_CPU_SIMD_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_SIMD_VEC_INL_H_
#undef NIBBLE_CPU_SIMD_VEC_INL_H_
#else
#define NIBBLE_CPU_SIMD_VEC_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backends/cpu/simd/targets.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "hwy/highway.h"

// Before a loop: unroll it n times, so that arrays of vectors become registers. Not in the portable
// fallback: its vectors are loops over their elements and no registers, there is nothing to gain,
// and all copies together took most of the time that compiling a file of kernels takes.
#undef NIBBLE_UNROLL
#if HWY_TARGET == HWY_EMU128
#define NIBBLE_UNROLL(n) _Pragma("GCC unroll 1")
#else
#define NIBBLE_PRAGMA(text) _Pragma(#text)
#define NIBBLE_UNROLL(n) NIBBLE_PRAGMA(GCC unroll n)
#endif

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
constexpr int kLanes = int(HWY_LANES(float));

// --- 16-bit floats ---
using D16 = hn::Rebind<uint16_t, DF>;

HWY_INLINE VF from_bf16(hn::Vec<D16> h) {
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), h)));
}

HWY_INLINE hn::Vec<D16> to_bf16_bits(VF v) {
  const DU du;
  const VU u = hn::BitCast(du, v);
  const VU high = hn::ShiftRight<16>(u);
  const VU rounded =
      hn::ShiftRight<16>(hn::Add(hn::Add(u, hn::Set(du, 0x7fffu)), hn::And(high, hn::Set(du, 1u))));
  const VU nan = hn::Or(high, hn::Set(du, 0x40u));
  const VU r = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, rounded);
  return hn::DemoteTo(D16(), hn::BitCast(DI(), r));
}

// Where the instruction set converts fp16 it rounds to nearest even and knows subnormals; the
// software version follows core/half.h.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
using DH = hn::Rebind<hwy::float16_t, DF>;
HWY_INLINE VF from_f16(hn::Vec<D16> h) { return hn::PromoteTo(DF(), hn::BitCast(DH(), h)); }
HWY_INLINE hn::Vec<D16> to_f16_bits(VF v) { return hn::BitCast(D16(), hn::DemoteTo(DH(), v)); }
#else
HWY_INLINE VF from_f16(hn::Vec<D16> h) {
  const DU du;
  const DF df;
  const VU u = hn::PromoteTo(du, h);
  const VU sign = hn::ShiftLeft<16>(hn::And(u, hn::Set(du, 0x8000u)));
  const VU a = hn::And(u, hn::Set(du, 0x7fffu));
  const VU shifted = hn::ShiftLeft<13>(a);
  const VU normal = hn::Add(shifted, hn::Set(du, 112u << 23));
  const VU special = hn::Or(shifted, hn::Set(du, 0x7f800000u));
  const VU sub =
      hn::BitCast(du, hn::Mul(hn::ConvertTo(df, hn::BitCast(DI(), a)), hn::Set(df, 0x1p-24f)));
  VU r = hn::IfThenElse(hn::RebindMask(du, hn::Lt(hn::BitCast(DI(), a), hn::Set(DI(), 0x0400))),
                        sub, normal);
  r = hn::IfThenElse(hn::RebindMask(du, hn::Gt(hn::BitCast(DI(), a), hn::Set(DI(), 0x7bff))),
                     special, r);
  return hn::BitCast(df, hn::Or(r, sign));
}
HWY_INLINE hn::Vec<D16> to_f16_bits(VF v) {
  const DU du;
  const DI di;
  const DF df;
  const VU u = hn::BitCast(du, v);
  const VU sign = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 0x8000u));
  const VU a = hn::And(u, hn::Set(du, 0x7fffffffu));
  const VI ai = hn::BitCast(di, a);
  const VU even = hn::And(hn::ShiftRight<13>(a), hn::Set(du, 1u));
  const VU normal = hn::ShiftRight<13>(
      hn::Sub(hn::Add(hn::Add(a, hn::Set(du, 0xfffu)), even), hn::Set(du, 0x38000000u)));
  const VU sub = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, a), hn::Set(df, 0.5f))),
                         hn::Set(du, 0x3f000000u));
  const VU nan = hn::Or(hn::And(hn::ShiftRight<13>(a), hn::Set(du, 0x3ffu)), hn::Set(du, 0x7e00u));
  const auto below = [&](uint32_t limit) {
    return hn::RebindMask(du, hn::Lt(ai, hn::Set(di, int32_t(limit))));
  };
  VU r = hn::IfThenElse(below(0x38800000u), sub, normal);
  r = hn::IfThenElse(below(0x477ff000u), r, hn::Set(du, 0x7c00u));
  r = hn::IfThenElse(below(0x7f800001u), r, nan);
  return hn::DemoteTo(D16(), hn::BitCast(di, hn::Or(r, sign)));
}
#endif

HWY_INLINE VF load(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF load(const bf16_t* p) {
  return from_bf16(hn::LoadU(D16(), reinterpret_cast<const uint16_t*>(p)));
}
HWY_INLINE VF load(const f16_t* p) {
  return from_f16(hn::LoadU(D16(), reinterpret_cast<const uint16_t*>(p)));
}
HWY_INLINE void store(VF v, float* p) { hn::StoreU(v, DF(), p); }
HWY_INLINE void store(VF v, bf16_t* p) {
  hn::StoreU(to_bf16_bits(v), D16(), reinterpret_cast<uint16_t*>(p));
}
HWY_INLINE void store(VF v, f16_t* p) {
  hn::StoreU(to_f16_bits(v), D16(), reinterpret_cast<uint16_t*>(p));
}

// The first n < kLanes elements; the rest reads as zero and is not written.
template <class T>
HWY_INLINE VF load_tail(const T* p, int64_t n) {
  alignas(64) T buffer[kLanes] = {};
  std::memcpy(buffer, p, size_t(n) * sizeof(T));
  return load(buffer);
}
template <class T>
HWY_INLINE void store_tail(VF v, T* p, int64_t n) {
  alignas(64) T buffer[kLanes];
  store(v, buffer);
  std::memcpy(p, buffer, size_t(n) * sizeof(T));
}

// What a value is after a trip through storage type T.
template <class T>
HWY_INLINE VF rounded(VF v) {
  if constexpr (std::is_same_v<T, bf16_t>) {
    return from_bf16(to_bf16_bits(v));
  } else if constexpr (std::is_same_v<T, f16_t>) {
    return from_f16(to_f16_bits(v));
  } else {
    return v;
  }
}

// out[i] = f(in[i]...) for i < n. Element-wise, so `out` may be one of the inputs.
template <class Out, class F, class... In>
void map(Out* out, int64_t n, F f, const In*... in) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(f(load(in + i)...), out + i);
  if (i < n) store_tail(f(load_tail(in + i, n - i)...), out + i, n - i);
}
template <class Out, class In>
HWY_NOINLINE void convert(Out* out, const In* in, int64_t n) {
  if constexpr (std::is_same_v<Out, In>) {
    std::memcpy(out, in, size_t(n) * sizeof(Out));
  } else {
    map(
        out, n, [](VF v) HWY_ATTR { return v; }, in);
  }
}

// Lanes summed in a fixed order.
HWY_INLINE float sum_lanes(VF v) { return hn::GetLane(hn::SumOfLanes(DF(), v)); }
HWY_INLINE float max_lanes(VF v) { return hn::GetLane(hn::MaxOfLanes(DF(), v)); }

// exp to within 2 ulp (the test holds it), exact at 0; 0 below -104, infinity above 88.73, NaN
// stays. x = n ln 2 + r, |r| <= ln 2 / 2, e^r by its Taylor polynomial to degree 7 (remainder
// 6e-9 relative), and 2^n in two factors so that subnormal results come out right.
HWY_INLINE VF exp(VF x) {
  const DF df;
  const DI di;
  const VF clamped = hn::Min(hn::Max(x, hn::Set(df, -104.0f)), hn::Set(df, 89.0f));
  const VF n = hn::Round(hn::Mul(clamped, hn::Set(df, 1.44269504f)));
  // ln 2 in two parts; the first has nine bits, so n times it is exact.
  VF r = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), r);
  VF p = hn::Set(df, 1.98412698e-4f);
  p = hn::MulAdd(p, r, hn::Set(df, 1.38888889e-3f));
  p = hn::MulAdd(p, r, hn::Set(df, 8.33333333e-3f));
  p = hn::MulAdd(p, r, hn::Set(df, 4.16666667e-2f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.66666667e-1f));
  p = hn::MulAdd(p, r, hn::Set(df, 0.5f));
  p = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(df, 1.0f));
  const VI ni = hn::ConvertTo(di, n);
  const VI half = hn::ShiftRight<1>(ni);
  const auto power_of_two = [&](VI e) HWY_ATTR {
    return hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(e, hn::Set(di, 127))));
  };
  p = hn::Mul(hn::Mul(p, power_of_two(half)), power_of_two(hn::Sub(ni, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, p);
}

// --- Tensors inside kernels: plain pointers, types resolved outside the loops ---
template <class T>
HWY_INLINE T* row(const Tensor& t, int64_t i) {
  return reinterpret_cast<T*>(t.data) + i * t.row_stride;
}
// Calls f(T*) with T the storage type of t.
template <class F>
HWY_INLINE void with_type(DType t, F f) {
  if (t == DType::f32) {
    f(static_cast<float*>(nullptr));
  } else if (t == DType::bf16) {
    f(static_cast<bf16_t*>(nullptr));
  } else {
    f(static_cast<f16_t*>(nullptr));
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

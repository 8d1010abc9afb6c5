// SPDX-License-Identifier: MIT
// NVFP4 by rule four-over-six (quant/nvfp4_kernels.cpp) on 16 blocks at once, a lane for a block,
// bit for bit. Needs fused multiply-adds: the rule's squared errors are sums of them.
#if defined(NIBBLE_CPU_SIMD_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_SIMD_QUANTIZE_INL_H_
#undef NIBBLE_CPU_SIMD_QUANTIZE_INL_H_
#else
#define NIBBLE_CPU_SIMD_QUANTIZE_INL_H_
#endif

#include "backends/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

#if HWY_NATIVE_FMA

// Of 16 blocks: codes in the nibble order of kernels/packed_layout.h, elements 0-7 and 8-15, and
// scale bytes.
struct QuantisedBlocks {
  alignas(64) uint32_t low[16], high[16];
  alignas(64) int32_t scale[16];
};

// x >= 0 or NaN.
HWY_INLINE VI e4m3_codes(VF x) {
  const DI di;
  const VI a = hn::BitCast(di, x);
  const VI even = hn::And(hn::ShiftRight<20>(a), hn::Set(di, 1));
  const VI up = hn::ShiftRight<20>(hn::Add(hn::Add(a, hn::Set(di, 0x7ffff)), even));
  const VI normal = hn::Sub(up, hn::Set(di, 120 << 3));
  const VI sub =
      hn::Sub(hn::BitCast(di, hn::Add(x, hn::Set(DF(), 0x1p14f))), hn::Set(di, 0x46800000));
  VI r = hn::IfThenElse(hn::Lt(a, hn::Set(di, 0x3c800000)), sub, normal);
  r = hn::IfThenElse(hn::Lt(a, hn::Set(di, 0x43e00000)), r, hn::Set(di, 0x7e));
  return hn::IfThenElse(hn::Gt(a, hn::Set(di, 0x7f800000)), hn::Set(di, 0x7f), r);
}
HWY_INLINE VF e4m3_values(VI code) {
  const DI di;
  const DF df;
  const VF normal = hn::BitCast(df, hn::Add(hn::ShiftLeft<20>(code), hn::Set(di, 120 << 23)));
  const VF sub = hn::Mul(hn::ConvertTo(df, code), hn::Set(df, 0x1p-9f));
  const VF r = hn::IfThenElse(hn::RebindMask(df, hn::Lt(code, hn::Set(di, 8))), sub, normal);
  const auto nan = hn::RebindMask(df, hn::Eq(code, hn::Set(di, 0x7f)));
  return hn::IfThenElse(nan, hn::Set(df, __builtin_nanf("")), r);
}

// How |x| / s is formed. exact: the rule's own fl32(a / s). short_values: a has 8 significant bits
// (bf16) and s 4 (no global scale), so a quotient is a tie of E2M1 or at least 2^-8 away from one,
// and the product with 1 / s, rounded to 16 bits, falls on the same side.
enum class Quotient { exact, short_values };

template <Quotient kQuotient>
struct Scale {
  VF s, inverse;
  HWY_INLINE explicit Scale(VF scale) : s(scale), inverse(scale) {
    if (kQuotient == Quotient::short_values) inverse = hn::Div(hn::Set(DF(), 1.0f), scale);
  }
  // Bits of the quotient, 6 at most; NaN, which may have a sign, becomes 6.
  HWY_INLINE VI quotient(VF a) const {
    const DI di;
    VI y;
    if (kQuotient == Quotient::short_values) {
      y = hn::BitCast(di, hn::Mul(a, inverse));
      y = hn::And(hn::Add(y, hn::Set(di, 0x80)), hn::Set(di, 0x7fffff00));
    } else {
      y = hn::And(hn::BitCast(di, hn::Div(a, s)), hn::Set(di, 0x7fffffff));
    }
    return hn::Min(y, hn::Set(di, 0x40c00000));
  }
};

// RNE to E2M1: the step is half the power of two below y, that of 1 at least. Adding 1.5 * 2^22
// times that power leaves exactly one bit below it.
struct Rounded {
  VI octave;  // bits of the power of two
  VI magic, sum;
  HWY_INLINE explicit Rounded(VI y) {
    const DI di;
    octave = hn::Max(hn::And(y, hn::Set(di, 0x7f800000)), hn::Set(di, 0x3f800000));
    magic = hn::Add(octave, hn::Set(di, (22 << 23) | 0x400000));
    sum = hn::BitCast(di, hn::Add(hn::BitCast(DF(), y), hn::BitCast(DF(), magic)));
  }
  HWY_INLINE VF value() const { return hn::Sub(hn::BitCast(DF(), sum), hn::BitCast(DF(), magic)); }
  HWY_INLINE VI code() const {
    return hn::Add(hn::Sub(sum, magic),
                   hn::Sub(hn::ShiftRight<22>(octave), hn::Set(DI(), 2 * 127)));
  }
};

template <Quotient kQuotient>
HWY_INLINE VF squared_error(const VF* x, const Scale<kQuotient>& scale) {
  VF part[2] = {hn::Zero(DF()), hn::Zero(DF())};
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 8; ++k) {
      const VF a = hn::Abs(x[8 * half + k]);
      const VF e = hn::MulSub(Rounded(scale.quotient(a)).value(), scale.s, a);
      part[half] = hn::MulAdd(e, e, part[half]);
    }
  }
  return hn::Add(part[0], part[1]);
}

// Elements 4 i .. 4 i + 3 of kLanes blocks: columns[k] holds element 4 i + k of each, p their
// first.
using D4 = hn::CappedTag<float, 4>;
HWY_INLINE VF load_pieces(const float* p) {
  const auto piece = [&](int block) HWY_ATTR { return hn::LoadU(D4(), p + 64 * block); };
#if HWY_TARGET == HWY_AVX3
  const hn::Half<DF> half;
  return hn::Combine(DF(), hn::Combine(half, piece(3), piece(2)),
                     hn::Combine(half, piece(1), piece(0)));
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(DF(), piece(1), piece(0));
#else
  return piece(0);
#endif
}
HWY_INLINE void load_columns(const float* p, VF* columns) {
  const DF df;
  const hn::RepartitionToWide<DU> wide;
  const VF r0 = load_pieces(p), r1 = load_pieces(p + 16);
  const VF r2 = load_pieces(p + 32), r3 = load_pieces(p + 48);
  const auto bits = [&](VF v) HWY_ATTR { return hn::BitCast(wide, v); };
  const auto a = bits(hn::InterleaveLower(df, r0, r1)), b = bits(hn::InterleaveLower(df, r2, r3));
  const auto c = bits(hn::InterleaveUpper(df, r0, r1)), d = bits(hn::InterleaveUpper(df, r2, r3));
  columns[0] = hn::BitCast(df, hn::InterleaveLower(wide, a, b));
  columns[1] = hn::BitCast(df, hn::InterleaveUpper(wide, a, b));
  columns[2] = hn::BitCast(df, hn::InterleaveLower(wide, c, d));
  columns[3] = hn::BitCast(df, hn::InterleaveUpper(wide, c, d));
}

// w [16][16], global scales g [16] (all 1, and not read, for short_values).
template <Quotient kQuotient>
HWY_NOINLINE void four_over_six(const float* w, const float* g, QuantisedBlocks* out) {
  const DI di;
  const DU du;
  const DF df;
  const VI one = hn::Set(di, 1);
  for (int group = 0; group < 16; group += kLanes, w += 16 * kLanes) {
    VF x[16];
    VI amax_bits = hn::Zero(di);
    for (int k = 0; k < 16; k += 4) load_columns(w + k, x + k);
    for (int k = 0; k < 16; ++k) {
      amax_bits = hn::Max(amax_bits, hn::BitCast(di, hn::Abs(x[k])));
    }
    const VF amax = hn::BitCast(df, amax_bits);
    const VF global = kQuotient == Quotient::exact ? load(g + group) : hn::Set(df, 1.0f);
    const auto byte = [&](float d) HWY_ATTR {
      VF wanted = hn::Div(amax, hn::Set(df, d));
      if (kQuotient == Quotient::exact) wanted = hn::Div(wanted, global);
      return hn::Max(e4m3_codes(wanted), one);
    };
    const VI byte6 = byte(6), byte4 = byte(4);
    const Scale<kQuotient> six(hn::Mul(e4m3_values(byte6), global));
    const Scale<kQuotient> four(hn::Mul(e4m3_values(byte4), global));
    // The largest code is that of the largest magnitude.
    const VF top4 = Rounded(four.quotient(amax)).value();
    const auto use4 = hn::And(hn::Eq(top4, hn::Set(df, 4.0f)),
                              hn::Lt(squared_error(x, four), squared_error(x, six)));
    Scale<kQuotient> chosen = six;
    chosen.s = hn::IfThenElse(use4, four.s, six.s);
    chosen.inverse = hn::IfThenElse(use4, four.inverse, six.inverse);
    const VI byte_chosen = hn::IfThenElse(hn::RebindMask(di, use4), byte4, byte6);
    const VI top = Rounded(chosen.quotient(amax)).code();
    hn::Store(hn::IfThenZeroElse(hn::Eq(top, hn::Zero(di)), byte_chosen), di, out->scale + group);

    VU words[2] = {hn::Zero(du), hn::Zero(du)};
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < 8; ++k) {
        const VF v = x[8 * half + k];
        const VU sign = hn::And(hn::ShiftRight<28>(hn::BitCast(du, v)), hn::Set(du, 8u));
        const VU code = hn::BitCast(du, Rounded(chosen.quotient(hn::Abs(v))).code());
        const int nibble = k < 4 ? 2 * k : 2 * (k - 4) + 1;
        words[half] = hn::Or(words[half], hn::ShiftLeftSame(hn::Or(code, sign), 4 * nibble));
      }
    }
    hn::Store(words[0], du, out->low + group);
    hn::Store(words[1], du, out->high + group);
  }
}

#endif  // HWY_NATIVE_FMA

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

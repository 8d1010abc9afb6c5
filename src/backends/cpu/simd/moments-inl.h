// SPDX-License-Identifier: MIT
// Whole blocks of 256 moments to and from floats: optim/moments.h in vectors, bit for bit.
#if defined(NIBBLE_CPU_SIMD_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_SIMD_MOMENTS_INL_H_
#undef NIBBLE_CPU_SIMD_MOMENTS_INL_H_
#else
#define NIBBLE_CPU_SIMD_MOMENTS_INL_H_
#endif

#include "backends/cpu/simd/vec-inl.h"
#include "optim/moments.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

using D8 = hn::Rebind<uint8_t, DF>;

// Eight floats that lanes look up by the low three bits of an index, in a register where one holds
// them. (Highway's own look-up wants indices in range, and the instructions do not.)
struct Table8 {
#if HWY_TARGET == HWY_AVX3
  VF values;  // twice: the instruction takes four bits
  HWY_INLINE explicit Table8(const float* p) {
    const auto v = hn::LoadU(hn::Half<DF>(), p);
    values = hn::Combine(DF(), v, v);
  }
  HWY_INLINE VF operator[](VI index) const {
    return VF{_mm512_permutexvar_ps(index.raw, values.raw)};
  }
#elif HWY_TARGET == HWY_AVX2
  VF values;
  HWY_INLINE explicit Table8(const float* p) : values(hn::LoadU(DF(), p)) {}
  HWY_INLINE VF operator[](VI index) const {
    return VF{_mm256_permutevar8x32_ps(values.raw, index.raw)};
  }
#else
  VF low, high;
  HWY_INLINE explicit Table8(const float* p)
      : low(hn::LoadU(DF(), p)), high(hn::LoadU(DF(), p + kLanes)) {
    static_assert(kLanes == 4);
  }
  HWY_INLINE VF operator[](VI index) const {
    const auto four = hn::IndicesFromVec(DF(), hn::And(index, hn::Set(DI(), 3)));
    const auto upper = hn::RebindMask(DF(), hn::TestBit(index, hn::Set(DI(), 4)));
    return hn::IfThenElse(upper, hn::TableLookupLanes(high, four), hn::TableLookupLanes(low, four));
  }
#endif
};
HWY_INLINE VI magnitude_bits(VF x) {
  return hn::And(hn::BitCast(DI(), x), hn::Set(DI(), 0x7fffffff));
}
template <class D>
HWY_INLINE float float_of_max(D d, hn::Vec<D> bits) {
  return __builtin_bit_cast(float, hn::GetLane(hn::MaxOfLanes(d, bits)));
}

// 16 random bits of each word: the low ones for m and the master, the high ones for v.
template <Moment kMoment>
HWY_INLINE VU random16(VU words) {
  return kMoment == Moment::first ? hn::And(words, hn::Set(DU(), 0xffffu))
                                  : hn::ShiftRight<16>(words);
}

// stochastic_bf16 with 16 random bits a lane, in the upper halves of the result; the lower ones are
// noise.
HWY_INLINE VU stochastic_bf16_high(VF x, VU random) {
  const DU du;
  const VU u = hn::BitCast(du, x);
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), hn::Or(u, hn::Set(du, 0x400000u)),
                        hn::Add(u, random));
}
// nearest_bits, as the random bits of stochastic_bf16_high.
HWY_INLINE VU nearest_bits(VF x) {
  const DU du;
  const VU last = hn::And(hn::ShiftRight<16>(hn::BitCast(du, x)), hn::Set(du, 1));
  return hn::Add(hn::Set(du, 0x7fffu), last);
}
HWY_INLINE hn::Vec<D16> high_halves(VU x) {
  return hn::DemoteTo(D16(), hn::BitCast(DI(), hn::ShiftRight<16>(x)));
}

// --- int8 ---
struct DynamicTables {
  Table8 step, base, per_step, origin, last, begin;
  HWY_INLINE DynamicTables()
      : step(kDynamicMap.step),
        base(kDynamicMap.base),
        per_step(kDynamicMap.per_step),
        origin(kDynamicMap.origin),
        last(kDynamicMap.last),
        begin(kDynamicMap.begin) {}

  HWY_INLINE VF values(const uint8_t* codes) const {
    const DI di;
    const VI code = hn::PromoteTo(di, hn::LoadU(D8(), codes));
    const VF c = hn::ConvertTo(DF(), hn::And(code, hn::Set(di, 127)));
    const VI exponent = hn::ShiftRight<23>(hn::BitCast(di, c));
    const VI q = hn::Sub(hn::Max(exponent, hn::Set(di, 126)), hn::Set(di, 126));
    const VF magnitude = hn::Add(hn::Mul(c, step[q]), base[q]);
    const VI sign = hn::And(hn::ShiftLeft<24>(code), hn::Set(di, INT32_MIN));
    return hn::BitCast(DF(), hn::Or(hn::BitCast(di, magnitude), sign));
  }
  HWY_INLINE VI codes(VF r) const {
    const DI di;
    const DF df;
    const VI first = hn::Set(di, 105 << 23);
    const VI a = hn::Min(hn::Max(magnitude_bits(r), first), hn::Set(di, 127 << 23));
    const VF magnitude = hn::BitCast(df, a);
    const VI x = hn::ShiftRight<17>(hn::Sub(a, first));
    const VI estimate =
        hn::ShiftRight<8>(hn::Add(hn::Add(x, hn::ShiftRight<2>(x)), hn::Set(di, 120)));
    const auto above = hn::RebindMask(di, hn::Ge(magnitude, begin[estimate]));
    const VI q = hn::IfThenElse(above, hn::Add(estimate, hn::Set(di, 1)), estimate);
    const VF code = hn::Add(hn::Mul(magnitude, per_step[q]), origin[q]);
    const VI kept = hn::NearestInt(hn::Min(code, last[q]));
    return hn::Or(kept, hn::And(hn::ShiftRight<24>(hn::BitCast(di, r)), hn::Set(di, 0x80)));
  }
};
struct LogTables {
  Table8 root, next, per_step;
  HWY_INLINE LogTables() : root(kLogMap.root), next(kLogMap.root + 1), per_step(kLogMap.per_step) {}

  HWY_INLINE VF values(const uint8_t* codes) const {
    const DI di;
    const VI minus = hn::Sub(hn::Zero(di), hn::PromoteTo(di, hn::LoadU(D8(), codes)));
    // 2^(-code/8): the exponent takes the whole octaves, the low three bits choose the root.
    const VI octaves = hn::And(hn::ShiftLeft<20>(minus), hn::Set(di, int32_t(0xff800000u)));
    return hn::BitCast(DF(), hn::Add(hn::BitCast(di, root[minus]), octaves));
  }
  HWY_INLINE VI codes(VF r, VU random) const {
    const DI di;
    const DF df;
    const VI a = magnitude_bits(r);
    const VF u =
        hn::BitCast(df, hn::Or(hn::And(a, hn::Set(di, 0x7fffff)), hn::Set(di, 0x3f800000)));
    const VI eighth = hn::And(hn::ShiftRight<20>(a), hn::Set(di, 7));
    const auto above = hn::RebindMask(di, hn::Ge(u, next[eighth]));
    const VI j = hn::IfThenElse(above, hn::Add(eighth, hn::Set(di, 1)), eighth);
    const VF part = hn::Mul(hn::Sub(u, root[j]), per_step[j]);
    const VF draw = hn::Add(hn::ConvertTo(df, hn::BitCast(di, random)), hn::Set(df, 0.5f));
    const VI place = hn::Add(hn::ShiftLeft<3>(hn::ShiftRight<23>(a)), j);
    const VI low = hn::Sub(hn::Set(di, 8 * 127), place);
    const auto up = hn::RebindMask(di, hn::Lt(draw, part));
    const VI code = hn::IfThenElse(up, hn::Sub(low, hn::Set(di, 1)), low);
    return hn::Min(hn::Max(code, hn::Zero(di)), hn::Set(di, 255));
  }
};
HWY_INLINE void store_codes(VI codes, uint8_t* p) {
  hn::StoreU(hn::DemoteTo(D8(), codes), D8(), p);
}

// --- Blocks ---
// The formats whose decoding is not part of the update loop.
template <Moment kMoment>
HWY_NOINLINE void decode_block(MomentFormat format, const MomentView& x, int64_t b, float* out) {
  const int64_t at = b * kMomentBlock;
  if (format == MomentFormat::f32) {
    convert(out, reinterpret_cast<const float*>(x.codes) + at, kMomentBlock);
  } else if (format == MomentFormat::bf16) {
    convert(out, reinterpret_cast<const bf16_t*>(x.codes) + at, kMomentBlock);
  } else {
    decode_moment<kMoment>(format, x, b, kMomentBlock, out);
  }
}

// amax: the block's, which the caller has at hand; used by int8.
template <Moment kMoment>
HWY_NOINLINE void encode_block(MomentFormat format, const MomentView& x, int64_t b, const float* in,
                               float amax, const uint32_t* words) {
  constexpr bool kFirst = kMoment == Moment::first;
  const int64_t at = b * kMomentBlock;
  if (format == MomentFormat::f32) {
    convert(reinterpret_cast<float*>(x.codes) + at, in, kMomentBlock);
  } else if (format == MomentFormat::bf16) {
    auto* out = reinterpret_cast<uint16_t*>(x.codes) + at;
    for (int64_t i = 0; i < kMomentBlock; i += kLanes) {
      const VF v = load(in + i);
      auto h = high_halves(stochastic_bf16_high(v, random16<kMoment>(hn::Load(DU(), words + i))));
      if (!kFirst) {  // v > 0 never becomes 0
        const auto lost =
            hn::And(hn::Gt(v, hn::Zero(DF())),
                    hn::RebindMask(DF(), hn::Eq(hn::PromoteTo(DI(), h), hn::Zero(DI()))));
        const VI one = hn::IfThenElseZero(hn::RebindMask(DI(), lost), hn::Set(DI(), 1));
        h = hn::Or(h, hn::DemoteTo(D16(), one));
      }
      hn::StoreU(h, D16(), out + i);
    }
  } else if (format == MomentFormat::int8) {
    const float scale = int8_moment_scale(amax);
    const VF inverse = hn::Set(DF(), inverse_or_zero(scale));
    x.scales[b] = scale;
    uint8_t* codes = x.codes + at;
    const LogTables log;
    const DynamicTables dynamic;
    for (int64_t i = 0; i < kMomentBlock; i += kLanes) {
      const VF r = hn::Mul(load(in + i), inverse);
      store_codes(
          kFirst ? dynamic.codes(r) : log.codes(r, random16<kMoment>(hn::Load(DU(), words + i))),
          codes + i);
    }
  } else {
    encode_moment<kMoment>(format, x, b, kMomentBlock, in, words);
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

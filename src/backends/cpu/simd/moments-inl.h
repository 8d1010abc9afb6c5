// SPDX-License-Identifier: MIT
// Whole blocks of 256 moments to and from floats: quant/moments.h in vectors, bit for bit.
#if defined(NIBBLE_CPU_SIMD_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_SIMD_MOMENTS_INL_H_
#undef NIBBLE_CPU_SIMD_MOMENTS_INL_H_
#else
#define NIBBLE_CPU_SIMD_MOMENTS_INL_H_
#endif

#include "backends/cpu/simd/vec-inl.h"
#include "quant/moments.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

using D8 = hn::Rebind<uint8_t, DF>;

// table[index], index < 8.
HWY_INLINE VF lookup8(const float* table, VI index) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  alignas(64) float t[kLanes] = {};
  std::memcpy(t, table, 32);
  return hn::TableLookupLanes(hn::Load(DF(), t), hn::IndicesFromVec(DF(), index));
#else
  return hn::GatherIndex(DF(), table, index);
#endif
}
HWY_INLINE VI magnitude_bits(VF x) {
  return hn::And(hn::BitCast(DI(), x), hn::Set(DI(), 0x7fffffff));
}
HWY_INLINE float float_of_max(VI magnitudes) {
  return __builtin_bit_cast(float, hn::GetLane(hn::MaxOfLanes(DI(), magnitudes)));
}

// Random 16 bits of each word: the low or the high ones.
template <Moment kMoment>
HWY_INLINE VU random16(const uint32_t* words) {
  const VU w = hn::Load(DU(), words);
  return kMoment == Moment::first ? hn::And(w, hn::Set(DU(), 0xffffu)) : hn::ShiftRight<16>(w);
}

// stochastic_bf16 with 16 random bits a lane.
HWY_INLINE hn::Vec<D16> stochastic_bf16_bits(VF x, VU random) {
  const DU du;
  const VU u = hn::BitCast(du, x);
  const VU nan = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40u));
  const VU r =
      hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), nan, hn::ShiftRight<16>(hn::Add(u, random)));
  return hn::DemoteTo(D16(), hn::BitCast(DI(), r));
}

// --- int8 ---
HWY_INLINE VF dynamic_values(const uint8_t* codes) {
  return hn::GatherIndex(DF(), kDynamicMap.value, hn::PromoteTo(DI(), hn::LoadU(D8(), codes)));
}
HWY_INLINE VI dynamic_codes(VF r) {
  const DI di;
  const VI u = hn::BitCast(di, r);
  const VI first = hn::Set(di, int32_t(DynamicMap::kFirst));
  const VI a = hn::Min(hn::Max(magnitude_bits(r), first), hn::Set(di, int32_t(DynamicMap::kLast)));
  const VI middle = hn::GatherIndex(di, reinterpret_cast<const int32_t*>(kDynamicMap.cell),
                                    hn::ShiftRight<17>(hn::Sub(a, first)));
  const VI code = hn::IfThenElse(hn::Gt(a, middle), hn::Add(middle, hn::Set(di, 1)), middle);
  // 127 is never above a midpoint, so the sum stays in seven bits.
  const VI sign = hn::And(hn::ShiftRight<24>(u), hn::Set(di, 0x80));
  return hn::Or(hn::And(code, hn::Set(di, 127)), sign);
}
HWY_INLINE VF log_values(const uint8_t* codes) {
  const DI di;
  const VI c = hn::PromoteTo(di, hn::LoadU(D8(), codes));
  const VI root =
      hn::BitCast(di, lookup8(kLogMap.root, hn::And(hn::Sub(hn::Zero(di), c), hn::Set(di, 7))));
  const VI octaves = hn::ShiftRight<3>(hn::Add(c, hn::Set(di, 7)));
  return hn::BitCast(DF(), hn::Sub(root, hn::ShiftLeft<23>(octaves)));
}
HWY_INLINE VI log_codes(VF r, VU random) {
  const DI di;
  const DF df;
  const VI a = magnitude_bits(r);
  const VF u = hn::BitCast(df, hn::Or(hn::And(a, hn::Set(di, 0x7fffff)), hn::Set(di, 0x3f800000)));
  const VI eighth = hn::And(hn::ShiftRight<20>(a), hn::Set(di, 7));
  const VI next = hn::Add(eighth, hn::Set(di, 1));
  const auto above = hn::RebindMask(di, hn::Ge(u, lookup8(kLogMap.root + 1, eighth)));
  const VI j = hn::IfThenElse(above, next, eighth);
  const VF part = hn::Mul(hn::Sub(u, lookup8(kLogMap.root, j)), lookup8(kLogMap.per_step, j));
  const VF draw = hn::Add(hn::ConvertTo(df, hn::BitCast(di, random)), hn::Set(df, 0.5f));
  const VI place = hn::Add(hn::ShiftLeft<3>(hn::ShiftRight<23>(a)), j);
  const VI low = hn::Sub(hn::Set(di, 8 * 127), place);
  const VI code =
      hn::IfThenElse(hn::RebindMask(di, hn::Lt(draw, part)), hn::Sub(low, hn::Set(di, 1)), low);
  return hn::Min(hn::Max(code, hn::Zero(di)), hn::Set(di, 255));
}
HWY_INLINE void store_codes(VI codes, uint8_t* p) {
  hn::StoreU(hn::DemoteTo(D8(), codes), D8(), p);
}

// --- Blocks ---
template <Moment kMoment>
HWY_NOINLINE void decode_block(MomentFormat format, const MomentView& x, int64_t b, float* out) {
  const int64_t at = b * kMomentBlock;
  if (format == MomentFormat::f32) {
    convert(out, reinterpret_cast<const float*>(x.codes) + at, kMomentBlock);
  } else if (format == MomentFormat::bf16) {
    convert(out, reinterpret_cast<const bf16_t*>(x.codes) + at, kMomentBlock);
  } else if (format == MomentFormat::int8) {
    const VF scale = hn::Set(DF(), x.scales[b]);
    const uint8_t* codes = x.codes + at;
    for (int64_t i = 0; i < kMomentBlock; i += kLanes) {
      const VF unit = kMoment == Moment::first ? dynamic_values(codes + i) : log_values(codes + i);
      store(hn::Mul(unit, scale), out + i);
    }
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
      auto h = stochastic_bf16_bits(v, random16<kMoment>(words + i));
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
    for (int64_t i = 0; i < kMomentBlock; i += kLanes) {
      const VF r = hn::Mul(load(in + i), inverse);
      store_codes(kFirst ? dynamic_codes(r) : log_codes(r, random16<kMoment>(words + i)),
                  codes + i);
    }
  } else {
    encode_moment<kMoment>(format, x, b, kMomentBlock, in, words);
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: MIT
// What the two NVFP4 kernels share: decoding scale bytes and writing a strip's results.
#if defined(NIBBLE_CPU_SIMD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_SIMD_TILE_INL_H_
#undef NIBBLE_CPU_SIMD_TILE_INL_H_
#else
#define NIBBLE_CPU_SIMD_TILE_INL_H_
#endif

#include "backends/cpu/kernels/linear.h"
#include "backends/cpu/kernels/packed_layout.h"
#include "backends/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

constexpr int kParts = int(kTileRows) / kLanes;  // vectors that hold one value per row of a tile
static_assert(kParts >= 1 && kParts * kLanes == kTileRows);

// kLanes E4M3 bytes (not negative, not NaN) as floats times 2^-8. Shifted left by 7 an E4M3 byte
// is an fp16 number, subnormals included.
HWY_INLINE VF decode_scales(const uint8_t* p) {
  const hn::Rebind<uint8_t, DF> d8;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
  return from_f16(hn::ShiftLeft<7>(hn::PromoteTo(D16(), hn::LoadU(d8, p))));
#else
  const DI di;
  const DF df;
  const VI a = hn::PromoteTo(di, hn::LoadU(d8, p));
  const VF normal = hn::BitCast(df, hn::Add(hn::ShiftLeft<20>(a), hn::Set(di, 112 << 23)));
  const VF sub = hn::Mul(hn::ConvertTo(df, a), hn::Set(df, 0x1p-17f));
  return hn::IfThenElse(hn::RebindMask(df, hn::Lt(a, hn::Set(di, 8))), sub, normal);
#endif
}

// Results of a strip for tokens n, n + 1, ...: out[n + t][row0 + i] = acc[t * stride + i] for the
// rows below `rows`.
template <class T>
HWY_NOINLINE void write_strip_as(const LinearOutput& o, int64_t n, int64_t tokens, int64_t row0,
                                 int64_t rows, const float* acc, int64_t stride) {
  for (int part = 0; part < kParts; ++part, row0 += kLanes, acc += kLanes) {
    const int64_t count = HWY_MIN(int64_t(kLanes), rows - row0);
    if (count <= 0) return;
    VF scale = hn::Set(DF(), 1.0f);
    if (o.row_scale) {
      scale = count == kLanes ? load(o.row_scale + row0) : load_tail(o.row_scale + row0, count);
    }
    for (int64_t t = 0; t < tokens; ++t) {
      T* out = row<T>(o.out, n + t) + row0;
      const VF v = hn::Mul(load(acc + t * stride), scale);
      if (count == kLanes) {
        store(v, out);
      } else {
        store_tail(v, out, count);
      }
    }
  }
}
HWY_INLINE void write_strip(const LinearOutput& o, int64_t n, int64_t tokens, int64_t row0,
                            int64_t rows, const float* acc, int64_t stride) {
  with_type(o.out.dtype, [&](auto* t) {
    write_strip_as<std::remove_pointer_t<decltype(t)>>(o, n, tokens, row0, rows, acc, stride);
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

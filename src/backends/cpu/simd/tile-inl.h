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

// acc: rows row .. row + kLanes of token n, of which those below `rows` exist.
template <class T>
HWY_INLINE void write_rows_as(const LinearOutput& o, int64_t n, int64_t row0, int64_t rows, VF acc) {
  const int64_t count = HWY_MIN(int64_t(kLanes), rows - row0);
  if (count <= 0) return;
  T* out = row<T>(o.out, n) + row0;
  if (count == kLanes) {
    if (o.row_scale) acc = hn::Mul(acc, load(o.row_scale + row0));
    store(acc, out);
  } else {
    if (o.row_scale) acc = hn::Mul(acc, load_tail(o.row_scale + row0, count));
    store_tail(acc, out, count);
  }
}
HWY_INLINE void write_rows(const LinearOutput& o, int64_t n, int64_t row0, int64_t rows, VF acc) {
  with_type(o.out.dtype, [&](auto* t) {
    write_rows_as<std::remove_pointer_t<decltype(t)>>(o, n, row0, rows, acc);
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: MIT
// What the kernels for many and for few rows share: the width of a panel of B and the writing of
// sums. Compiled once per target.
#if defined(NIBBLE_CPU_KERNELS_GEMM_WRITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_KERNELS_GEMM_WRITE_INL_H_
#undef NIBBLE_CPU_KERNELS_GEMM_WRITE_INL_H_
#else
#define NIBBLE_CPU_KERNELS_GEMM_WRITE_INL_H_
#endif

#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/simd/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

constexpr int kCols = 2 * kLanes;

// bits: one word per lane, of which the low half counts.
HWY_INLINE void store_stochastic(VF v, const uint32_t* bits, bf16_t* out, int64_t n) {
  const DU du;
  const VU u = hn::BitCast(du, v);
  const VU r = hn::ShiftRight<16>(hn::Add(u, hn::And(hn::LoadU(du, bits), hn::Set(du, 0xffffu))));
  const VU nan = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40u));
  const VU h = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, r);
  alignas(64) uint16_t buffer[kLanes];
  hn::StoreU(hn::DemoteTo(D16(), hn::BitCast(DI(), h)), D16(), buffer);
  std::memcpy(out, buffer, size_t(n) * sizeof(bf16_t));
}

// The rounding bits of kCols elements of a row, from element `first` of the whole gradient on.
HWY_INLINE const uint32_t* rounding_bits(const PhiloxLanes& random, uint64_t first,
                                         uint32_t* words) {
  const uint64_t begin = first / kCols * kCols;
  VU low, high;
  for (uint64_t at = begin; at < first + kCols; at += kCols) {
    random.words(at, &low, &high);
    hn::Store(low, DU(), words + (at - begin));
    hn::Store(high, DU(), words + (at - begin) + kLanes);
  }
  return words + (first - begin);
}

// Sums [rows][kCols] into c at (row0, col0), as far as c goes.
template <class T>
HWY_NOINLINE void write_sums_as(const GemmOutput& o, const float* tile, int64_t rows, int64_t row0,
                                int64_t col0) {
  const bool add = o.accumulate == Accumulate::yes;
  const bool stochastic = add && o.rounding == GemmOutput::Rounding::stochastic;
  const PhiloxLanes random(o.seed, o.stream);
  for (int64_t i = 0; i < rows; ++i, tile += kCols) {
    T* out = row<T>(o.c, row0 + i) + col0;
    alignas(64) uint32_t words[2 * kCols];
    const uint32_t* bits = nullptr;
    if (stochastic) {
      const auto element = uint64_t((row0 + i) * o.c.shape[1] + col0);
      bits = rounding_bits(random, o.offset + element, words);
    }
    for (int v = 0; v < 2; ++v) {
      const int64_t col = v * kLanes;
      const int64_t n = HWY_MIN(int64_t(kLanes), o.c.shape[1] - col0 - col);
      if (n <= 0) break;
      const bool whole = n == kLanes;
      VF x = load(tile + col);
      if (o.column_scale) {
        const float* scale = o.column_scale + col0 + col;
        x = hn::Mul(x, whole ? load(scale) : load_tail(scale, n));
      }
      if (add) x = hn::Add(whole ? load(out + col) : load_tail(out + col, n), x);
      if constexpr (std::is_same_v<T, bf16_t>) {
        if (stochastic) {
          store_stochastic(x, bits + col, out + col, n);
          continue;
        }
      }
      if (whole) {
        store(x, out + col);
      } else {
        store_tail(x, out + col, n);
      }
    }
  }
}
HWY_INLINE void write_sums(const GemmOutput& o, const float* sums, int64_t rows, int64_t row0,
                           int64_t col0) {
  with_type(o.c.dtype, [&](auto* t) {
    write_sums_as<std::remove_pointer_t<decltype(t)>>(o, sums, HWY_MIN(rows, o.c.shape[0] - row0),
                                                      row0, col0);
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

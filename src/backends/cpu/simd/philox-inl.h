// SPDX-License-Identifier: MIT
// Philox 4x32-10 (core/rng.h), as many counters at once as a vector has 64-bit lanes.
#if defined(NIBBLE_CPU_SIMD_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_SIMD_PHILOX_INL_H_
#undef NIBBLE_CPU_SIMD_PHILOX_INL_H_
#else
#define NIBBLE_CPU_SIMD_PHILOX_INL_H_
#endif

#include "backends/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// words[i] = random_bits(seed, stream, first + i) for i < count; first is a multiple of 4 * count,
// count of 2 * kLanes.
HWY_NOINLINE void random_words(uint64_t seed, uint64_t stream, uint64_t first, int64_t count,
                               uint32_t* words) {
  const DU d;
  const hn::RepartitionToWide<DU> wide;
  const VU m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  const VU index_high = hn::Set(d, uint32_t(first / 4 >> 32));
  // Only the low half of each 64-bit lane counts; the products read nothing else.
  const auto lane = hn::Iota(wide, 0);
  for (int64_t i = 0; i < count; i += 2 * kLanes) {
    VU c0 = hn::BitCast(d, hn::Add(hn::Set(wide, (first + uint64_t(i)) / 4), lane));
    VU c1 = index_high;
    VU c2 = hn::Set(d, uint32_t(stream)), c3 = hn::Set(d, uint32_t(stream >> 32));
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto p0 = hn::MulEven(c0, m0), p1 = hn::MulEven(c2, m1);
      c0 = hn::Xor(hn::BitCast(d, hn::ShiftRight<32>(p1)), hn::Xor(c1, hn::Set(d, k0)));
      c2 = hn::Xor(hn::BitCast(d, hn::ShiftRight<32>(p0)), hn::Xor(c3, hn::Set(d, k1)));
      c1 = hn::BitCast(d, p1);
      c3 = hn::BitCast(d, p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const auto pair = [&](VU low, VU high) HWY_ATTR {
      const auto up = hn::ShiftLeft<32>(hn::BitCast(wide, high));
      return hn::BitCast(wide, hn::OddEven(hn::BitCast(d, up), low));
    };
    hn::StoreInterleaved2(pair(c0, c1), pair(c2, c3), wide, reinterpret_cast<uint64_t*>(words + i));
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

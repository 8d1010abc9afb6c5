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

class PhiloxLanes {
 public:
  PhiloxLanes(uint64_t seed, uint64_t stream) : stream_(stream) {
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      keys_[2 * round] = k0, keys_[2 * round + 1] = k1;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    // Counters such that interleaving pairs of words within 128 bits puts them in order.
    for (int lane = 0; lane < kLanes / 2; ++lane) {
      order_[lane] = uint64_t(lane / 2 + (lane % 2) * (kLanes / 4));
    }
  }

  // random_bits of elements first .. first + 2 * kLanes - 1; first is a multiple of 2 * kLanes.
  HWY_INLINE void words(uint64_t first, VU* low, VU* high) const {
    const DU d;
    const hn::RepartitionToWide<DU> wide;
    const VU m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
    // Only the low half of each 64-bit lane counts; the products read nothing else.
    const auto fours = hn::Add(hn::Set(wide, first / 4), hn::Load(wide, order_));
    VU c0 = hn::BitCast(d, hn::ShiftRight<1>(fours));
    VU c1 = hn::Set(d, uint32_t(first / 8 >> 32));
    VU c2 = hn::Set(d, uint32_t(stream_)), c3 = hn::Set(d, uint32_t(stream_ >> 32));
    NIBBLE_UNROLL(10)
    for (int round = 0; round < 10; ++round) {
      const auto p0 = hn::MulEven(c0, m0), p1 = hn::MulEven(c2, m1);
      c0 = hn::Xor3(hn::BitCast(d, hn::ShiftRight<32>(p1)), c1, hn::Set(d, keys_[2 * round]));
      c2 = hn::Xor3(hn::BitCast(d, hn::ShiftRight<32>(p0)), c3, hn::Set(d, keys_[2 * round + 1]));
      c1 = hn::BitCast(d, p1);
      c3 = hn::BitCast(d, p0);
    }
    // Every other four elements have the halves of their words exchanged.
    const auto one = hn::Set(wide, 1);
    const auto second = hn::Eq(hn::And(fours, one), one);
    const auto exchange = [&](VU& c) HWY_ATTR {
      const VU turned = hn::Or(hn::ShiftLeft<16>(c), hn::ShiftRight<16>(c));
      c = hn::BitCast(d, hn::IfThenElse(second, hn::BitCast(wide, turned), hn::BitCast(wide, c)));
    };
    exchange(c0), exchange(c1), exchange(c2), exchange(c3);
    const auto pair = [&](VU even, VU odd) HWY_ATTR {
      const VU up = hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(wide, odd)));
      return hn::BitCast(wide, hn::OddEven(up, even));
    };
    const auto a = pair(c0, c1), b = pair(c2, c3);
    *low = hn::BitCast(d, hn::InterleaveLower(wide, a, b));
    *high = hn::BitCast(d, hn::InterleaveUpper(wide, a, b));
  }

 private:
  alignas(64) uint64_t order_[kLanes / 2];
  uint32_t keys_[20];
  uint64_t stream_;
};

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: MIT
// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011): the value at (seed, stream,
// index) depends on nothing else, so any chunking, thread count or resume gives the same bits.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace nibble {

// The parts, for code that multiplies or schedules its keys in its own way.
constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxKeyStep0 = 0x9E3779B9u, kPhiloxKeyStep1 = 0xBB67AE85u;
// One round on four words; `product` multiplies two words to 64 bits.
template <class Words, class Product>
constexpr void philox_round(Words& c, uint32_t k0, uint32_t k1, Product&& product) {
  const uint64_t p0 = product(0xD2511F53u, c[0]), p1 = product(0xCD9E8D57u, c[2]);
  const uint32_t c1 = c[1], c3 = c[3];
  c[0] = uint32_t(p1 >> 32) ^ c1 ^ k0, c[1] = uint32_t(p1);
  c[2] = uint32_t(p0 >> 32) ^ c3 ^ k1, c[3] = uint32_t(p0);
}

constexpr std::array<uint32_t, 4> philox(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  std::array<uint32_t, 4> c{uint32_t(index), uint32_t(index >> 32), uint32_t(stream),
                            uint32_t(stream >> 32)};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    philox_round(c, k0, k1, [](uint32_t a, uint32_t b) { return uint64_t(a) * b; });
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  return c;
}

// Uniform in [0, 1) with 53 bits.
constexpr double uniform_double(uint32_t a, uint32_t b) {
  return double((uint64_t(a) << 21) ^ (b >> 11)) * 0x1p-53;
}

// Two standard normal values from one Philox block (Box-Muller).
inline std::array<double, 2> normal_pair(const std::array<uint32_t, 4>& r) {
  const double u = 1.0 - uniform_double(r[0], r[1]);  // (0, 1]: the logarithm stays finite
  const double v = uniform_double(r[2], r[3]);
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * 3.14159265358979323846 * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace nibble

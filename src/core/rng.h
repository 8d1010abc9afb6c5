// SPDX-License-Identifier: MIT
// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011): the value at (seed, stream,
// index) depends on nothing else, so any chunking, thread count or resume gives the same bits.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace nibble {

constexpr std::array<uint32_t, 4> philox(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  std::array<uint32_t, 4> c{uint32_t(index), uint32_t(index >> 32), uint32_t(stream),
                            uint32_t(stream >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1,
         uint32_t(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
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

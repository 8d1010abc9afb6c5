// SPDX-License-Identifier: MIT
#include "core/hash.h"

#include <cstring>

namespace nibble {
namespace {

uint64_t load(const char* p, size_t n) {
  uint64_t v = 0;
  std::memcpy(&v, p, n);
  return v;
}

uint64_t fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return uint64_t(product) ^ uint64_t(product >> 64);
}

constexpr uint64_t kMul1 = 0x9e3779b97f4a7c15u, kMul2 = 0xd6e8feb86659fd93u;

}  // namespace

uint64_t hash_bytes(std::string_view s, uint64_t seed) {
  const char* p = s.data();
  size_t n = s.size();
  uint64_t h = seed ^ (n * kMul2);
  for (; n > 8; p += 8, n -= 8) h = fold(h ^ load(p, 8), kMul1);
  uint64_t tail = 0;
  if (n >= 4) {
    tail = load(p, 4) << 32 | load(p + n - 4, 4);
  } else if (n > 0) {
    tail = uint64_t(uint8_t(p[0])) << 16 | uint64_t(uint8_t(p[n / 2])) << 8 | uint8_t(p[n - 1]);
  }
  return fold(h ^ tail, kMul1 ^ h);
}

}  // namespace nibble

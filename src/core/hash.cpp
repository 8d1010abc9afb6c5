// SPDX-License-Identifier: MIT
#include "core/hash.h"

#include <fmt/format.h>

#include <algorithm>
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

// Each lane folds 16 bytes at a time into itself; the lanes do not wait for each other.
void QuickHash::blocks(const std::byte* p, size_t count) {
  constexpr uint64_t kSecret[kLanes] = {0x452821e638d01377u, 0xbe5466cf34e90c6cu,
                                        0xc0ac29b7c97c50ddu, 0x3f84d5b5b5470917u};
  auto s = state_;
  for (; count > 0; --count, p += kBlock) {
    for (size_t i = 0; i < kLanes; ++i) {
      const char* at = reinterpret_cast<const char*>(p) + 16 * i;
      // The lane is added once more: a factor that happens to be zero does not wipe it out.
      s[i] = fold(s[i] ^ load(at, 8), kSecret[i] ^ load(at + 8, 8)) + s[i] * kMul1;
    }
  }
  state_ = s;
}

void QuickHash::update(std::span<const std::byte> bytes) {
  total_ += bytes.size();
  if (pending_size_ > 0) {
    const size_t taken = std::min(bytes.size(), kBlock - pending_size_);
    std::copy_n(bytes.data(), taken, pending_.data() + pending_size_);
    pending_size_ += taken;
    bytes = bytes.subspan(taken);
    if (pending_size_ < kBlock) return;
    blocks(pending_.data(), 1);
    pending_size_ = 0;
  }
  blocks(bytes.data(), bytes.size() / kBlock);
  pending_size_ = bytes.size() % kBlock;
  std::copy_n(bytes.data() + (bytes.size() - pending_size_), pending_size_, pending_.data());
}

std::string QuickHash::finish() {
  std::fill(pending_.begin() + std::ptrdiff_t(pending_size_), pending_.end(), std::byte{0});
  blocks(pending_.data(), 1);
  std::string text;
  for (size_t i = 0; i < kLanes; ++i) {  // every lane has a part in every word
    uint64_t word = total_ ^ (i * kMul2);
    for (size_t k = 0; k < kLanes; ++k) word = fold(word ^ state_[(i + k) % kLanes], kMul1) ^ word;
    text += fmt::format("{:016x}", word);
  }
  return text;
}

}  // namespace nibble

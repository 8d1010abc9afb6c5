// SPDX-License-Identifier: MIT
// A quick hash for tables and for telling contents apart; not for anything an adversary makes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nibble {

// 64-bit hash of a few bytes; the same on every little-endian machine and in every version.
uint64_t hash_bytes(std::string_view bytes, uint64_t seed);

// Of a large file as it is written or read, in any chunking: 256 bits that tell damage, faster
// than memory gives the bytes (sha256.h, at a tenth of that, names files). The same on every
// little-endian machine and in every version.
class QuickHash {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  std::string finish();  // 64 hexadecimal digits; once, at the end

 private:
  static constexpr size_t kLanes = 4, kBlock = 16 * kLanes;
  void blocks(const std::byte* p, size_t count);
  std::array<uint64_t, kLanes> state_ = {0x243f6a8885a308d3u, 0x13198a2e03707344u,
                                         0xa4093822299f31d0u, 0x082efa98ec4e6c89u};
  std::array<std::byte, kBlock> pending_{};
  size_t pending_size_ = 0;
  uint64_t total_ = 0;
};

}  // namespace nibble

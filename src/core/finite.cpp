// SPDX-License-Identifier: MIT
#include "core/finite.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace nibble {
namespace {

// Elements whose bits under `mask` are all set have no value. Pieces small enough for the nearest
// cache, in a loop that compilers make vectors of; only a piece with a finding is looked at twice.
template <class Bits>
std::optional<size_t> first_with_all(std::span<const std::byte> bytes, Bits mask) {
  constexpr size_t kPiece = 4096 / sizeof(Bits);
  const size_t n = bytes.size() / sizeof(Bits);
  Bits piece[kPiece];
  for (size_t begin = 0; begin < n; begin += kPiece) {
    const size_t count = std::min(kPiece, n - begin);
    std::memcpy(piece, bytes.data() + begin * sizeof(Bits), count * sizeof(Bits));
    Bits found = 0;
    for (size_t i = 0; i < count; ++i) found |= Bits(Bits(piece[i] & mask) == mask);
    if (found == 0) continue;
    const Bits* at =
        std::find_if(piece, piece + count, [mask](Bits b) { return Bits(b & mask) == mask; });
    return begin + size_t(at - piece);
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> first_not_finite(DType type, std::span<const std::byte> bytes) {
  switch (type) {
    case DType::c128:
      if (const auto at = first_with_all<uint64_t>(bytes, 0x7ff0'0000'0000'0000)) return *at / 2;
      return std::nullopt;
    case DType::f64: return first_with_all<uint64_t>(bytes, 0x7ff0'0000'0000'0000);
    case DType::f32: return first_with_all<uint32_t>(bytes, 0x7f80'0000);
    case DType::bf16: return first_with_all<uint16_t>(bytes, 0x7f80);
    case DType::f16: return first_with_all<uint16_t>(bytes, 0x7c00);
    case DType::f8_e4m3: return first_with_all<uint8_t>(bytes, 0x7f);
    default: return std::nullopt;
  }
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "formats/checks.h"

#include <algorithm>
#include <limits>

#include "core/checked.h"

namespace nibble {

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = uint8_t(text[i]);
    const size_t n = lead < 0x80   ? 1
                     : lead < 0xc2 ? 0
                     : lead < 0xe0 ? 2
                     : lead < 0xf0 ? 3
                     : lead < 0xf5 ? 4
                                   : 0;
    if (n == 0 || n > text.size() - i) return false;
    for (size_t k = 1; k < n; ++k) {
      if ((uint8_t(text[i + k]) & 0xc0) != 0x80) return false;
    }
    if (n > 2) {
      // The second byte rules out overlong forms, surrogates and values past U+10FFFF.
      const auto second = uint8_t(text[i + 1]);
      if (lead == 0xe0 && second < 0xa0) return false;
      if (lead == 0xed && second > 0x9f) return false;
      if (lead == 0xf0 && second < 0x90) return false;
      if (lead == 0xf4 && second > 0x8f) return false;
    }
    i += n;
  }
  return true;
}

std::optional<uint64_t> shape_bytes(std::span<const int64_t> shape, DType dtype) {
  uint64_t size = dtype_bytes(dtype);
  bool empty = false;
  for (const int64_t d : shape) {
    if (d < 0) return std::nullopt;
    empty |= d == 0;
    const auto next = checked_mul(size, std::max<uint64_t>(1, uint64_t(d)));
    if (!next || *next > uint64_t(std::numeric_limits<int64_t>::max())) return std::nullopt;
    size = *next;
  }
  return empty ? 0 : size;
}

}  // namespace nibble

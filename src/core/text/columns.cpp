// SPDX-License-Identifier: MIT
#include "core/text/columns.h"

#include <algorithm>
#include <cstdint>

namespace nibble {
namespace {

struct Glyph {
  uint32_t code;
  size_t bytes;
};

Glyph first_glyph(std::string_view s) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char b = at(0);
  const size_t n = b < 0x80 ? 1 : b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc2 ? 2 : 1;
  if (n == 1 || s.size() < n) return {b, 1};
  uint32_t code = b & (0xffu >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xc0) != 0x80) return {b, 1};
    code = code << 6 | (at(i) & 0x3fu);
  }
  return {code, n};
}

struct Range {
  uint32_t first, last;
};

template <size_t N>
bool among(const Range (&ranges)[N], uint32_t code) {
  return std::ranges::any_of(ranges, [&](Range r) { return code >= r.first && code <= r.last; });
}

size_t columns_of_code(uint32_t code) {
  static constexpr Range kNone[] = {{0x300, 0x36f},   {0x200b, 0x200f}, {0x20d0, 0x20ff},
                                    {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
  static constexpr Range kTwo[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},
                                   {0xa960, 0xa97f},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},
                                   {0xfe30, 0xfe6f},   {0xff01, 0xff60},   {0xffe0, 0xffe6},
                                   {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff},
                                   {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};
  if (code < 0x300) return 1;
  if (among(kNone, code)) return 0;
  return among(kTwo, code) ? 2 : 1;
}

}  // namespace

size_t columns_of(std::string_view line) {
  size_t n = 0;
  while (!line.empty()) {
    const Glyph g = first_glyph(line);
    n += columns_of_code(g.code);
    line.remove_prefix(g.bytes);
  }
  return n;
}

std::string clipped(std::string_view line, size_t columns) {
  size_t n = 0, at = 0;
  while (at < line.size()) {
    const Glyph g = first_glyph(line.substr(at));
    n += columns_of_code(g.code);
    if (n > columns) break;
    at += g.bytes;
  }
  return std::string(line.substr(0, at));
}

}  // namespace nibble

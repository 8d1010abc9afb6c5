// SPDX-License-Identifier: MIT
#include "core/text/visible.h"

#include <fmt/format.h>

#include <cstdint>

namespace nibble {
namespace {

struct Decoded {
  uint32_t value = 0;
  size_t length = 0;  // 0: not UTF-8
};

// Bytes of the character that begins with `first`; 0: none begins so.
size_t length_of(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

Decoded decode(std::string_view text) {
  const auto byte = [&](size_t i) { return uint8_t(text[i]); };
  const size_t n = length_of(byte(0));
  if (n == 0 || n > text.size()) return {};
  uint32_t value = n == 1 ? byte(0) : byte(0) & (0x7fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  const bool longer_than_needed = (n == 3 && value < 0x800) || (n == 4 && value < 0x10000);
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  if (longer_than_needed || surrogate || value > 0x10ffff) return {};
  return {value, n};
}

bool acts_on_terminals(uint32_t c) {
  const bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
  // Marks and overrides of direction, separators of lines and paragraphs.
  const bool direction = (c >= 0x200e && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
                         (c >= 0x2066 && c <= 0x2069) || c == 0x061c;
  return control || direction || c == 0x2028 || c == 0x2029;
}

std::string visible(std::string_view text, bool one_line) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Decoded d = decode(text.substr(i));
    const char c = text[i];
    if (d.length == 0) {
      out += fmt::format("\\x{:02x}", uint8_t(c));
      ++i;
      continue;
    }
    const bool line_end = c == '\n' || (c == '\r' && text.substr(i, 2) == "\r\n");
    if (!acts_on_terminals(d.value) || (!one_line && (line_end || c == '\t'))) {
      out += text.substr(i, d.length);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else {
      out +=
          d.value < 0x100 ? fmt::format("\\x{:02x}", d.value) : fmt::format("\\u{:04x}", d.value);
    }
    i += d.length;
  }
  return out;
}

}  // namespace

std::string visible_text(std::string_view text) { return visible(text, false); }
std::string visible_line(std::string_view text) { return visible(text, true); }

size_t whole_characters(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t n = length_of(uint8_t(text[text.size() - back]));
    if (n > back) return text.size() - back;  // begun, not ended
    if (n != 0) break;
  }
  return text.size();
}

}  // namespace nibble

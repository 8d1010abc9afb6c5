// SPDX-License-Identifier: MIT
#include "apps/editor/text_cells.h"

#include <utf8proc.h>

#include <algorithm>

#include "core/text/visible.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

constexpr char32_t kEmojiStyle = 0xfe0f;  // VARIATION SELECTOR-16
constexpr char32_t kJoiner = 0x200d;      // ZERO WIDTH JOINER

int code_point_width(char32_t c) { return utf8proc_charwidth(utf8proc_int32_t(c)); }

}  // namespace

size_t next_character(std::string_view text, size_t at) {
  if (at >= text.size()) return text.size();
  CodePoint c = decode_valid(text.data() + at);
  at += c.length;
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    const CodePoint next = decode_valid(text.data() + at);
    if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(c.value), utf8proc_int32_t(next.value),
                                         &state)) {
      break;
    }
    at += next.length;
    c = next;
  }
  return at;
}

// Whether a place is a boundary may depend on what stands far before it (flags, joined emoji), so
// the search begins at a place that is one whatever does.
size_t previous_character(std::string_view text, size_t at) {
  if (at == 0) return 0;
  const auto before = [&](size_t i) {
    do --i;
    while (i > 0 && (uint8_t(text[i]) & 0xc0) == 0x80);
    return i;
  };
  size_t begin = before(at);
  while (begin > 0) {
    const size_t left = before(begin);
    const char32_t a = decode_valid(text.data() + left).value;
    const char32_t b = decode_valid(text.data() + begin).value;
    if (a != kJoiner && utf8proc_grapheme_break(utf8proc_int32_t(a), utf8proc_int32_t(b))) break;
    begin = left;
  }
  for (size_t next; (next = next_character(text.substr(0, at), begin)) < at;) begin = next;
  return begin;
}

std::string drawn_character(std::string_view character) {
  return character == "\t" ? "    " : visible_line(character);
}

int character_width(std::string_view character) {
  const std::string drawn = drawn_character(character);
  int width = 0;
  for (size_t i = 0; i < drawn.size();) {
    const CodePoint c = decode_valid(drawn.data() + i);
    width += c.value == kEmojiStyle ? std::max(0, 2 - width) : code_point_width(c.value);
    i += c.length;
  }
  return width;
}

int text_width(std::string_view text) {
  int width = 0;
  for (size_t at = 0, next; at < text.size(); at = next) {
    next = next_character(text, at);
    width += character_width(text.substr(at, next - at));
  }
  return width;
}

std::vector<ScreenRow> screen_rows(std::string_view text, int lead, int columns) {
  std::vector<ScreenRow> rows = {{0, 0, true, lead}};
  for (size_t at = 0, next; at < text.size(); at = next) {
    next = next_character(text, at);
    if (text[at] == '\n') {
      rows.push_back({next, next, true, lead});
      continue;
    }
    const int width = character_width(text.substr(at, next - at));
    ScreenRow& row = rows.back();
    if (row.width + width > columns && row.end > row.begin) {
      rows.push_back({at, next, false, width});
    } else {
      row.end = next;
      row.width += width;
    }
  }
  return rows;
}

size_t row_of(const std::vector<ScreenRow>& rows, size_t at) {
  const auto after = std::upper_bound(rows.begin(), rows.end(), at,
                                      [](size_t a, const ScreenRow& r) { return a < r.begin; });
  return after == rows.begin() ? 0 : size_t(after - rows.begin()) - 1;
}

}  // namespace nibble

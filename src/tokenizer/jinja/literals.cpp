// SPDX-License-Identifier: MIT
#include "tokenizer/jinja/literals.h"

#include <algorithm>
#include <charconv>

#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits with single underscores between them.
size_t digits(std::string_view s, size_t from) {
  size_t i = from;
  while (i < s.size() && (is_digit(s[i]) || (s[i] == '_' && i > from && s[i - 1] != '_' &&
                                             i + 1 < s.size() && is_digit(s[i + 1])))) {
    ++i;
  }
  return i;
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string without_underscores(std::string_view s) {
  std::string out;
  for (const char c : s) {
    if (c != '_') out += c;
  }
  return out;
}

size_t read_integer(std::string_view s, int base, size_t from, NumberLiteral& out,
                    std::string& error) {
  size_t end = from;
  while (end < s.size()) {
    const int d = hex_digit(s[end]);
    const bool underscore = s[end] == '_' && end + 1 < s.size() && hex_digit(s[end + 1]) >= 0;
    if (!underscore && (d < 0 || d >= base)) break;
    ++end;
  }
  const std::string text = without_underscores(s.substr(from, end - from));
  const auto r = std::from_chars(text.data(), text.data() + text.size(), out.integer, base);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size()) {
    error = "integer literal is not understood or beyond 64 bits";
  }
  return end;
}

std::string truncated(char kind) {
  return kind == 'x'   ? "truncated \\xXX escape"
         : kind == 'u' ? "truncated \\uXXXX escape"
                       : "truncated \\UXXXXXXXX escape";
}

void append_code_point(std::string& out, char32_t& high, char32_t c) {
  if (high && c >= 0xdc00 && c <= 0xdfff) {
    append_utf8(out, 0x10000 + ((high - 0xd800) << 10) + (c - 0xdc00));
    high = 0;
    return;
  }
  if (high) append_utf8(out, 0xfffd);
  high = c >= 0xd800 && c <= 0xdbff ? c : 0;
  if (!high) append_utf8(out, c >= 0xdc00 && c <= 0xdfff ? 0xfffd : c);
}

}  // namespace

std::string normalized_newlines(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\r') {
      out += '\n';
      if (i + 1 < s.size() && s[i + 1] == '\n') ++i;
    } else {
      out += s[i];
    }
  }
  return out;
}

size_t read_number(std::string_view s, bool after_dot, NumberLiteral& out, std::string& error) {
  if (s.size() > 2 && s[0] == '0') {
    const char k = char(s[1] | 0x20);
    const int base = k == 'x' ? 16 : k == 'o' ? 8 : k == 'b' ? 2 : 0;
    if (base && (hex_digit(s[2]) >= 0 || s[2] == '_')) return read_integer(s, base, 2, out, error);
  }
  size_t end = digits(s, 0);
  if (!after_dot) {
    size_t real_end = end;
    if (end + 1 < s.size() && s[end] == '.' && is_digit(s[end + 1])) real_end = digits(s, end + 1);
    size_t e = real_end;
    if (e < s.size() && (s[e] == 'e' || s[e] == 'E')) {
      ++e;
      if (e < s.size() && (s[e] == '+' || s[e] == '-')) ++e;
      if (e < s.size() && is_digit(s[e])) real_end = digits(s, e);
    }
    if (real_end > end) {
      const std::string text = without_underscores(s.substr(0, real_end));
      out.is_real = true;
      const auto r = std::from_chars(text.data(), text.data() + text.size(), out.real);
      if (r.ec == std::errc::result_out_of_range) error = "number beyond the range of a float";
      return real_end;
    }
  }
  if (s[0] == '0') end = std::min(end, s.find_first_not_of("0_"));
  return read_integer(s.substr(0, end), 10, 0, out, error);
}

bool unescape_string(std::string_view s, std::string& out, std::string& error) {
  char32_t high = 0;  // the first half of a surrogate pair
  const auto put = [&](char32_t c) { append_code_point(out, high, c); };
  for (size_t i = 0; i < s.size();) {
    if (s[i] != '\\') {
      const CodePoint c = decode_valid(s.data() + i);
      put(c.value);
      i += c.length;
      continue;
    }
    const char k = i + 1 < s.size() ? s[i + 1] : '\\';
    i += 2;
    const int hex = k == 'x' ? 2 : k == 'u' ? 4 : k == 'U' ? 8 : 0;
    if (hex) {
      uint32_t c = 0;
      for (int n = 0; n < hex; ++n, ++i) {
        const int d = i < s.size() ? hex_digit(s[i]) : -1;
        if (d < 0) return error = truncated(k), false;
        c = c * 16 + uint32_t(d);
      }
      if (c > 0x10ffff) return error = "illegal Unicode character", false;
      put(c);
      continue;
    }
    if (k >= '0' && k <= '7') {
      uint32_t c = uint32_t(k - '0');
      for (int n = 1; n < 3 && i < s.size() && s[i] >= '0' && s[i] <= '7'; ++n, ++i) {
        c = c * 8 + uint32_t(s[i] - '0');
      }
      put(c);
      continue;
    }
    switch (k) {
      case '\n': break;  // a line that goes on
      case '\\':
      case '\'':
      case '"': put(char32_t(k)); break;
      case 'a': put('\a'); break;
      case 'b': put('\b'); break;
      case 'f': put('\f'); break;
      case 'n': put('\n'); break;
      case 'r': put('\r'); break;
      case 't': put('\t'); break;
      case 'v': put('\v'); break;
      case 'N': return error = "character names (\\N{...}) are not supported", false;
      default:
        put('\\');
        --i;  // the character itself, which may have more bytes, comes next
        break;
    }
  }
  if (high) append_utf8(out, 0xfffd);
  return true;
}

}  // namespace nibble::jinja

// SPDX-License-Identifier: MIT
#include "tokenizer/json_reader.h"

#include <array>
#include <vector>

#include "core/error.h"
#include "core/text/nesting.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

// Bytes that end the plain part of a string: the quote, the backslash, control characters.
constexpr std::array<bool, 256> kStringStop = [] {
  std::array<bool, 256> stop{};
  for (size_t c = 0; c < 0x20; ++c) stop[c] = true;
  stop['"'] = stop['\\'] = true;
  return stop;
}();

}  // namespace

void JsonReader::fail(std::string_view what) const {
  throw_format("{}: {}{}at byte {}: {}", name_, section_, section_.empty() ? "" : ", ", at_, what);
}

char JsonReader::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonReader::accept(char c) {
  if (peek() != c || at_ == text_.size()) return false;
  ++at_;
  return true;
}

void JsonReader::expect(char c) {
  if (accept(c)) return;
  if (at_ == text_.size()) fail(fmt::format("the file ends where '{}' was expected", c));
  fail(fmt::format("expected '{}'", c));
}

void JsonReader::expect_end() {
  peek();
  if (at_ != text_.size()) fail("text after the end of the document");
}

uint32_t JsonReader::read_uint32() {
  peek();
  const size_t start = at_;
  uint64_t value = 0;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
    value = value * 10 + uint64_t(text_[at_] - '0');
    if (value > INT32_MAX) fail("the number is too large for a token id");
    ++at_;
  }
  const bool leading_zero = at_ - start > 1 && text_[start] == '0';
  const bool more = at_ < text_.size() && (text_[at_] == '.' || (text_[at_] | 0x20) == 'e');
  if (at_ == start || leading_zero || more) fail("expected a non-negative whole number");
  return uint32_t(value);
}

std::string_view JsonReader::read_string(std::string& storage) {
  expect('"');
  const size_t start = at_;
  while (at_ < text_.size() && !kStringStop[uint8_t(text_[at_])]) ++at_;
  if (at_ < text_.size() && text_[at_] == '"') return text_.substr(start, at_++ - start);
  storage.assign(text_.substr(start, at_ - start));
  unescape(storage);
  return storage;
}

void JsonReader::unescape(std::string& out) {
  for (;;) {
    const size_t start = at_;
    while (at_ < text_.size() && !kStringStop[uint8_t(text_[at_])]) ++at_;
    out.append(text_.substr(start, at_ - start));
    if (at_ == text_.size()) fail("the file ends inside a string");
    const char c = text_[at_++];
    if (c == '"') return;
    if (c != '\\') fail("control character inside a string");
    if (at_ == text_.size()) fail("the file ends inside a string");
    const char e = text_[at_++];
    switch (e) {
      case '"':
      case '\\':
      case '/': out += e; break;
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'n': out += '\n'; break;
      case 'r': out += '\r'; break;
      case 't': out += '\t'; break;
      case 'u': {
        uint32_t code = hex4();
        if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
          at_ += 2;
          const uint32_t low = hex4();
          if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair");
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        } else if (code >= 0xd800 && code < 0xe000) {
          fail("half of a surrogate pair");
        }
        append_utf8(out, code);
        break;
      }
      default: fail("unknown escape in a string");
    }
  }
}

uint32_t JsonReader::hex4() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const char low = char(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + uint32_t(c - '0');
    } else if (low >= 'a' && low <= 'f') {
      value = value * 16 + uint32_t(low - 'a' + 10);
    } else {
      fail("bad \\u escape in a string");
    }
  }
  return value;
}

void JsonReader::skip_string() {
  expect('"');
  for (;;) {
    while (at_ < text_.size() && !kStringStop[uint8_t(text_[at_])]) ++at_;
    if (at_ == text_.size()) fail("the file ends inside a string");
    const char c = text_[at_++];
    if (c == '"') return;
    if (c != '\\') fail("control character inside a string");
    if (at_ < text_.size()) ++at_;  // the escape itself is checked by whoever reads the value
  }
}

// Checks brackets and strings only; what is inside is checked when the value is read.
std::string_view JsonReader::skip_value() {
  peek();
  const size_t start = at_;
  std::vector<char> closers;
  do {
    const char c = peek();
    if (c == '"') {
      skip_string();
    } else if (c == '{' || c == '[') {
      if (closers.size() == kMaxNesting) fail(fmt::format("nested deeper than {}", kMaxNesting));
      closers.push_back(c == '{' ? '}' : ']');
      ++at_;
    } else if (c == '}' || c == ']') {
      if (closers.empty() || closers.back() != c) fail(fmt::format("unexpected '{}'", c));
      closers.pop_back();
      ++at_;
    } else if (at_ == text_.size()) {
      fail("the file ends inside a value");
    } else if (!closers.empty() && (c == ',' || c == ':')) {
      ++at_;
    } else {
      const size_t word = at_;
      while (at_ < text_.size() &&
             std::string_view(",:]} \n\r\t\"[{").find(text_[at_]) == std::string_view::npos) {
        ++at_;
      }
      if (at_ == word) fail("expected a value");
    }
  } while (!closers.empty());
  return text_.substr(start, at_ - start);
}

bool JsonReader::next_member(bool& first, std::string_view& key, std::string& storage) {
  if (first) {
    expect('{');
    first = false;
    if (accept('}')) return false;
  } else {
    if (accept('}')) return false;
    expect(',');
  }
  key = read_string(storage);
  expect(':');
  return true;
}

bool JsonReader::next_element(bool& first) {
  if (first) {
    expect('[');
    first = false;
    return !accept(']');
  }
  if (accept(']')) return false;
  expect(',');
  return true;
}

}  // namespace nibble

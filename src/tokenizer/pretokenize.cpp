// SPDX-License-Identifier: MIT
#include "tokenizer/pretokenize.h"

#include "tokenizer/unicode.h"

namespace nibble {
namespace {

// Reads classes ahead of the position; past the end everything is `none`.
enum class Kind : uint8_t { other, letter, number, space, newline, none };

struct AsciiKinds {
  Kind kind[128];
  constexpr AsciiKinds() : kind() {
    for (int c = 0; c < 128; ++c) {
      kind[c] = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? Kind::letter
                : c >= '0' && c <= '9'                           ? Kind::number
                : c == '\r' || c == '\n'                         ? Kind::newline
                : c == ' ' || (c >= 9 && c <= 12)                ? Kind::space
                                                                 : Kind::other;
    }
  }
};
constexpr AsciiKinds kAscii;

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), table_(UnicodeTable::instance()) {}

  struct Char {
    Kind kind;
    uint32_t length;
  };
  Char at(size_t i) const {
    if (i >= text_.size()) return {Kind::none, 0};
    const uint8_t b = uint8_t(text_[i]);
    if (b < 0x80) return {kAscii.kind[b], 1};
    const CodePoint c = decode_valid(text_.data() + i);
    return {Kind(table_.char_class(c.value)), c.length};
  }
  size_t skip(size_t i, Kind kind) const {
    for (Char c = at(i); c.kind == kind; c = at(i)) i += c.length;
    return i;
  }

  // Length of 's 't 're 've 'm 'll 'd at an apostrophe, in any case; 0 when it is none of them.
  size_t contraction(size_t i) const {
    const auto low = [this](size_t k) { return k < text_.size() ? text_[k] | 0x20 : 0; };
    const int a = low(i + 1), b = low(i + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' || a == 'v') && b == 'e') return 3;
    if (a == 'l' && b == 'l') return 3;
    // Caseless matching folds U+017F (long s) to s, too.
    return text_.substr(i + 1, 2) == "\u017f" ? 3 : 0;
  }

  // The end of the piece that starts at i. The alternatives of the pattern, in its order.
  size_t piece_end(size_t i) const {
    const Char c = at(i);
    if (text_[i] == '\'') {
      if (const size_t n = contraction(i)) return i + n;
    }
    if (c.kind == Kind::letter) return skip(i + c.length, Kind::letter);
    if (c.kind == Kind::number) return i + c.length;
    const size_t second = i + c.length;
    if (c.kind != Kind::newline) {
      const Char d = at(second);
      if (d.kind == Kind::letter) return skip(second + d.length, Kind::letter);
      if (c.kind == Kind::other || (text_[i] == ' ' && d.kind == Kind::other)) {
        return skip(skip(second, Kind::other), Kind::newline);
      }
    }
    return space_end(i);
  }

 private:
  // \s*[\r\n]+ | \s+(?!\S) | \s+ : up to the last newline of the run; without one the whole run at
  // the end of the text, else all but its last character, which goes with what follows.
  size_t space_end(size_t i) const {
    size_t end = i, last = i, after_newline = 0;
    for (Char c = at(i); c.kind == Kind::space || c.kind == Kind::newline; c = at(end)) {
      last = end;
      end += c.length;
      if (c.kind == Kind::newline) after_newline = end;
    }
    if (after_newline) return after_newline;
    return end == text_.size() || last == i ? end : last;
  }

  std::string_view text_;
  const UnicodeTable& table_;
};

}  // namespace

void split_qwen(std::string_view text, std::vector<uint32_t>& ends) {
  const Scanner scanner(text);
  for (size_t i = 0; i < text.size();) {
    i = scanner.piece_end(i);
    ends.push_back(uint32_t(i));
  }
}

}  // namespace nibble

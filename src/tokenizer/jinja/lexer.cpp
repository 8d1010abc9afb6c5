// SPDX-License-Identifier: MIT
#include "tokenizer/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "tokenizer/jinja/literals.h"
#include "tokenizer/jinja/spell.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace {

// Two-character operators before their first halves.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalized_newlines(source)) {
    if (!text_.empty() && text_.back() == '\n') text_.pop_back();
    s_ = text_;
  }

  std::vector<Token> all() {
    while (at_ < s_.size()) root();
    push(TokenKind::end, "", at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t where, const std::string& what) {
    throw Raised("TemplateSyntaxError", what, position(where));
  }

  Position position(size_t where) {
    where = std::min(where, s_.size());
    while (counted_ < where) {
      if (s_[counted_++] == '\n') {
        ++line_;
        line_start_ = counted_;
      }
    }
    // Tokens come in order; a message may look back within the line.
    return {line_, int(where >= line_start_ ? where - line_start_ : 0) + 1};
  }

  void push(TokenKind kind, std::string text, size_t where) {
    tokens_.push_back({kind, std::move(text), 0, 0, position(where)});
  }

  bool at(std::string_view what, size_t where) const {
    return s_.substr(where, what.size()) == what;
  }

  size_t skip_space(size_t from) const { return from + stripped_begin(s_.substr(from)); }

  // Text up to the next tag, then the tag.
  void root() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = s_.find('{', tag);
      if (tag == s_.npos || tag + 1 >= s_.size()) {
        push(TokenKind::data, std::string(s_.substr(at_)), at_);
        at_ = s_.size();
        return;
      }
      if (s_[tag + 1] == '%' || s_[tag + 1] == '{' || s_[tag + 1] == '#') break;
    }
    const char kind = s_[tag + 1];
    size_t inside = tag + 2;
    char sign = 0;
    if (inside < s_.size() && (s_[inside] == '-' || s_[inside] == '+')) sign = s_[inside++];
    data(tag, sign, kind != '{');
    if (kind == '#') {
      comment(tag, inside);
    } else if (kind == '%' && raw(inside)) {
      // taken
    } else {
      push(kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin, "", tag);
      at_ = inside;
      line_starting_ = false;
      tag_tokens(kind == '%');
    }
  }

  // The text before a tag, without what the tag takes of it.
  void data(size_t tag, char sign, bool block) {
    std::string_view text = s_.substr(at_, tag - at_);
    if (sign == '-') {
      text = text.substr(0, stripped_end(text));
    } else if (sign != '+' && block) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == text.npos ? 0 : newline + 1;
      if (line > 0 || line_starting_) {
        if (stripped_begin(text.substr(line)) == text.size() - line) text = text.substr(0, line);
      }
    }
    if (!text.empty()) push(TokenKind::data, std::string(text), at_);
  }

  // The end of a tag: "-%}" takes all white space after it, "%}" one newline, "+%}" nothing.
  // Returns where the text goes on, or npos.
  size_t tag_end(size_t where, std::string_view closing, bool plus, bool trims) const {
    if (where < s_.size() && s_[where] == '-' && at(closing, where + 1)) {
      return skip_space(where + 1 + closing.size());
    }
    if (plus && where < s_.size() && s_[where] == '+' && at(closing, where + 1)) {
      return where + 1 + closing.size();
    }
    if (!at(closing, where)) return s_.npos;
    const size_t end = where + closing.size();
    return trims && end < s_.size() && s_[end] == '\n' ? end + 1 : end;
  }

  void go_on(size_t end) {
    at_ = end;
    line_starting_ = end > 0 && s_[end - 1] == '\n';
  }

  void comment(size_t tag, size_t inside) {
    for (size_t i = inside; i < s_.size(); ++i) {
      if (s_[i] != '#' && s_[i] != '-' && s_[i] != '+') continue;
      const size_t end = tag_end(i, "#}", true, true);
      if (end != s_.npos) return go_on(end);
    }
    fail(tag, "Missing end of comment tag");
  }

  // {% raw %} ... {% endraw %}; `inside` is behind "{%" and its sign.
  bool raw(size_t inside) {
    const size_t word = skip_space(inside);
    if (!at("raw", word)) return false;
    const size_t begin = tag_end(skip_space(word + 3), "%}", false, false);
    if (begin == s_.npos) return false;
    go_on(begin);
    for (size_t tag = begin; (tag = s_.find("{%", tag)) != s_.npos; ++tag) {
      size_t i = tag + 2;
      char sign = 0;
      if (i < s_.size() && (s_[i] == '-' || s_[i] == '+')) sign = s_[i++];
      i = skip_space(i);
      if (!at("endraw", i)) continue;
      const size_t end = tag_end(skip_space(i + 6), "%}", true, true);
      if (end == s_.npos) continue;
      data(tag, sign, true);
      go_on(end);
      return true;
    }
    fail(inside, "Missing end of raw directive");
  }

  void tag_tokens(bool block) {
    std::string open;  // the brackets that wait for their ends
    for (;;) {
      at_ = skip_space(at_);
      if (at_ >= s_.size()) return;
      if (open.empty()) {
        const size_t end = tag_end(at_, block ? "%}" : "}}", block, block);
        if (end != s_.npos) {
          push(block ? TokenKind::block_end : TokenKind::variable_end, "", at_);
          return go_on(end);
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = s_[at_];
    if (c >= '0' && c <= '9') return number();
    const CodePoint first = decode_valid(s_.data() + at_);
    if (is_word(first.value)) return name();
    if (c == '\'' || c == '"') return string();
    for (const std::string_view op : kOperators) {
      if (!at(op, at_)) continue;
      balance(op, open);
      push(TokenKind::op, std::string(op), at_);
      at_ += op.size();
      return;
    }
    unexpected_char(first.length);
  }

  [[noreturn]] void unexpected_char(size_t bytes) {
    const std::string_view before = s_.substr(0, at_);
    const auto characters = std::count_if(before.begin(), before.end(),
                                          [](char c) { return (uint8_t(c) & 0xc0) != 0x80; });
    fail(at_,
         fmt::format("unexpected char {} at {}", in_quotes(s_.substr(at_, bytes)), characters));
  }

  void balance(std::string_view op, std::string& open) {
    if (op == "(") open += ')';
    if (op == "[") open += ']';
    if (op == "{") open += '}';
    if (open.size() > 200) fail(at_, "too many nested parentheses");
    if (op != ")" && op != "]" && op != "}") return;
    if (open.empty()) fail(at_, fmt::format("unexpected '{}'", op));
    if (open.back() != op[0]) {
      fail(at_, fmt::format("unexpected '{}', expected '{}'", op, open.back()));
    }
    open.pop_back();
  }

  static bool is_word(char32_t c) {
    if (c < 0x80) return c == '_' || std::isalnum(int(c));
    const CharClass k = UnicodeTable::instance().char_class(c);
    return k == CharClass::letter || k == CharClass::number;
  }

  void name() {
    size_t end = at_;
    while (end < s_.size()) {
      const CodePoint c = decode_valid(s_.data() + end);
      if (!is_word(c.value)) break;
      end += c.length;
    }
    push(TokenKind::name, std::string(s_.substr(at_, end - at_)), at_);
    at_ = end;
  }

  void number() {
    NumberLiteral n;
    std::string error;
    const size_t length = read_number(s_.substr(at_), at_ > 0 && s_[at_ - 1] == '.', n, error);
    if (!error.empty()) fail(at_, error);
    push(n.is_real ? TokenKind::real : TokenKind::integer, std::string(s_.substr(at_, length)),
         at_);
    tokens_.back().integer = n.integer;
    tokens_.back().real = n.real;
    at_ += length;
  }

  void string() {
    const char quote = s_[at_];
    size_t end = at_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) unexpected_char(1);
    std::string value, error;
    if (!unescape_string(s_.substr(at_ + 1, end - at_ - 1), value, error)) fail(at_, error);
    push(TokenKind::text, std::move(value), at_);
    at_ = end + 1;
  }

  std::string text_;
  std::string_view s_;
  size_t at_ = 0, counted_ = 0, line_start_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t stripped_begin(std::string_view s) {
  size_t i = 0;
  while (i < s.size()) {
    const CodePoint c = decode_valid(s.data() + i);
    if (!is_space(c.value)) break;
    i += c.length;
  }
  return i;
}

size_t stripped_end(std::string_view s) {
  size_t end = s.size();
  while (end > 0) {
    size_t i = end - 1;
    while (i > 0 && (uint8_t(s[i]) & 0xc0) == 0x80) --i;
    if (!is_space(decode_valid(s.data() + i).value)) break;
    end = i;
  }
  return end;
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data: return "template data";
    case TokenKind::variable_begin: return "begin of print statement";
    case TokenKind::variable_end: return "end of print statement";
    case TokenKind::block_begin: return "begin of statement block";
    case TokenKind::block_end: return "end of statement block";
    case TokenKind::end: return "end of template";
    case TokenKind::text: return "string";
    case TokenKind::integer: return "integer";
    case TokenKind::real: return "float";
    default: return token.text;
  }
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).all(); }

}  // namespace nibble::jinja

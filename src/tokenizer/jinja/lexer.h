// SPDX-License-Identifier: MIT
// A template as tokens, with the white space rules of chat templates already applied: a newline
// after a block tag and blanks before it are not part of the text (trim_blocks, lstrip_blocks), and
// so are those a '-' asks for.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/error.h"
#include "tokenizer/jinja/value.h"

namespace nibble::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  text,
  integer,
  real,
  op,
  end
};

struct Token {
  TokenKind kind;
  std::string text;  // of data, a name, a string without its quotes, or an operator
  int64_t integer = 0;
  double real = 0;
  Position at;

  bool is_op(std::string_view o) const { return kind == TokenKind::op && text == o; }
  bool is_name(std::string_view n) const { return kind == TokenKind::name && text == n; }
};
std::string describe(const Token& token);  // for messages

// The last token is `end`. `source` must be valid UTF-8. Throws Raised("TemplateSyntaxError").
std::vector<Token> tokenize(std::string_view source);

// Python's white space, str.isspace() and \s alike.
bool is_space(char32_t c);
// The text without white space at its end or its start, as positions of bytes.
size_t stripped_end(std::string_view s);
size_t stripped_begin(std::string_view s);

}  // namespace nibble::jinja

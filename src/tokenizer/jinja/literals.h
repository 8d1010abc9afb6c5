// SPDX-License-Identifier: MIT
// Numbers and strings as a template spells them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace nibble::jinja {

std::string normalized_newlines(std::string_view s);  // \r\n and \r become \n

struct NumberLiteral {
  bool is_real = false;
  int64_t integer = 0;
  double real = 0;
};
// Reads a number at the start of `s` and returns its bytes; `error` says what is wrong with it.
// Behind a dot ("x.1.2") only whole numbers are read.
size_t read_number(std::string_view s, bool after_dot, NumberLiteral& out, std::string& error);

// The escapes of a Python string. False: `error` says why not.
bool unescape_string(std::string_view s, std::string& out, std::string& error);

}  // namespace nibble::jinja

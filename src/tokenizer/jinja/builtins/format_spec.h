// SPDX-License-Identifier: MIT
// Numbers in the forms that format() and % ask for.
#pragma once
#include <cstdint>
#include <string>

namespace nibble::jinja {

struct NumberForm {
  char kind = 0;  // b c d e E f F g G n o x X %, or 0
  int precision = -1;
  char sign = '-';  // '-', '+' or ' '
  bool alternate = false;
  char grouping = 0;  // ',' or '_'
};

// Digits without sign or padding; `negative` says which sign belongs to them.
std::string integer_digits(int64_t v, const NumberForm& form, bool& negative);
std::string real_digits(double v, const NumberForm& form, bool& negative);
std::string sign_of(bool negative, char wanted);

}  // namespace nibble::jinja

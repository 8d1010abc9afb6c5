// SPDX-License-Identifier: MIT
// Values as text: Python's str() and repr(), number formats, escapes. What a string is made of
// keeps its origin; brackets, quotes and commas around outside values count as outside.
#pragma once
#include <string>
#include <string_view>

#include "tokenizer/jinja/value.h"

namespace nibble::jinja {

Text spell(Interpreter& in, const Value& v);  // str(v)
Text repr(Interpreter& in, const Value& v);   // repr(v)
void add_repr(TextBuilder& out, Interpreter& in, const Value& v);
std::string plain_repr(const Value& v);     // of plain values, for messages
std::string in_quotes(std::string_view s);  // repr of a string
std::string float_repr(double d);

// & < > " ' as HTML writes them (markupsafe.escape).
Text html_escaped(Budget& budget, const Text& t);

}  // namespace nibble::jinja

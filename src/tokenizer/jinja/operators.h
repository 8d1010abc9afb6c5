// SPDX-License-Identifier: MIT
// + - * / // % ** and comparisons between values, and slices, as Python does them.
#pragma once
#include <optional>
#include <string>

#include "tokenizer/jinja/value.h"

namespace nibble::jinja {

Value unary_operator(char op, const Value& v);
Value binary_operator(Interpreter& in, const std::string& op, const Value& a, const Value& b);
bool compare_operator(Interpreter& in, const std::string& op, const Value& a, const Value& b);
Value slice(Interpreter& in, const Value& of, const std::optional<Value>& start,
            const std::optional<Value>& stop, const std::optional<Value>& step);

int64_t floor_divide(int64_t a, int64_t b);  // raises ZeroDivisionError
int64_t modulo(int64_t a, int64_t b);

}  // namespace nibble::jinja

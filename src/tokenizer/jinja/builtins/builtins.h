// SPDX-License-Identifier: MIT
// The filters, tests, functions and methods that come with the language.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "tokenizer/jinja/interpreter.h"

namespace nibble::jinja {

using FilterBody = Value (*)(Interpreter& in, const Value& input, Args& args);
using TestBody = bool (*)(Interpreter& in, const Value& input, Args& args);
using MethodBody = Value (*)(Interpreter& in, const Value& self, Args& args);

struct NamedFilter {
  const char* name;
  FilterBody body;
};
struct NamedMethod {
  const char* name;
  MethodBody body;
};

FilterBody find_text_filter(std::string_view name);      // filters_text.cpp
FilterBody find_sequence_filter(std::string_view name);  // filters_sequence.cpp
FilterBody find_select_filter(std::string_view name);    // filters_select.cpp
FilterBody find_number_filter(std::string_view name);    // filters_number.cpp
FilterBody find_filter(std::string_view name);
TestBody find_test(std::string_view name);  // tests.cpp
bool is_filter(std::string_view name);
bool is_test(std::string_view name);
// Functions every template can call: range, namespace, dict, ... None for other names.
Value global_function(std::string_view name);  // globals.cpp

// Methods of str, list, tuple, dict; null where the type has none of this name.
MethodBody find_text_method(std::string_view name);    // text_methods.cpp
MethodBody find_text_question(std::string_view name);  // text_questions.cpp
MethodBody find_list_method(std::string_view name);    // container_methods.cpp
MethodBody find_tuple_method(std::string_view name);
MethodBody find_dict_method(std::string_view name);

template <size_t N, class Table>
auto find_in(const Table (&table)[N], std::string_view name) -> decltype(table[0].body) {
  for (const Table& t : table) {
    if (name == t.name) return t.body;
  }
  return nullptr;
}

// Arguments of a builtin, put in the order of its parameters. Raises where a call does not fit.
class Params {
 public:
  Params(const char* function, Args& args, std::initializer_list<const char*> names,
         size_t required = 0);
  const Value* operator[](size_t i) const { return values_[i]; }  // null: not given
  bool given(size_t i) const { return values_[i] && !values_[i]->is_none(); }
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise, Interpreter& in) const;
  const Text& text(size_t i) const;  // raises when it is no string
  Value value(size_t i, Value otherwise) const { return values_[i] ? *values_[i] : otherwise; }

 private:
  const char* function_;
  std::vector<const Value*> values_;
};

// The input of a filter that works on text; undefined counts as empty, others are spelled out.
Text soft_text(Interpreter& in, const Value& v);

// filters_select.cpp: the member that "a.b.0" names (`otherwise` where a part is missing), and what
// `sort`, `unique`, `min` compare.
Value attribute_path(Interpreter& in, Value v, const Value& path, const Value* otherwise = nullptr);
Value sort_key(Interpreter& in, const Value& v, bool case_sensitive);

// Shared by filters and methods (text_work.cpp).
Text strip(Budget& budget, const Text& t, const Value* chars, bool left, bool right);
Text replace(Budget& budget, const Text& t, const Text& from, const Text& to, int64_t count);
Text upper(Budget& budget, const Text& t);
Text lower(Budget& budget, const Text& t);
Text capitalize(Budget& budget, const Text& t);
Text pad(Budget& budget, const Text& t, int64_t width, const Text& fill, char align);
Text repeated(Budget& budget, const Text& t, int64_t times);
std::vector<Text> split_lines(Budget& budget, const Text& t, bool keep_ends);
Text join_texts(Interpreter& in, const Text& separator, const std::vector<Value>& items);

Text format_braces(Interpreter& in, const Text& format, const Args& args);    // format.cpp
Text format_percent(Interpreter& in, const Text& format, const Value& with);  // format_percent.cpp
Text format_value(Interpreter& in, const Value& v, const Text& spec);         // format_spec.cpp
Text to_json(Interpreter& in, const Value& v, Args& args);                    // json.cpp

}  // namespace nibble::jinja

// SPDX-License-Identifier: MIT
// What a.b and a[b] are: methods and members of values, behind the sandbox of chat templates.
#include <algorithm>
#include <array>
#include <cmath>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace {

// Methods that change their list or dict: there, but not to be called.
bool mutates(const Value& of, std::string_view name) {
  static constexpr std::array<std::string_view, 8> list = {"append", "clear", "pop",    "reverse",
                                                           "insert", "sort",  "extend", "remove"};
  static constexpr std::array<std::string_view, 5> dict = {"clear", "pop", "popitem", "setdefault",
                                                           "update"};
  const auto has = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return (of.list() && !of.list()->tuple && has(list)) || (of.dict() && has(dict));
}

MethodBody find_method(const Value& of, std::string_view name) {
  if (of.text()) {
    const MethodBody m = find_text_method(name);
    return m ? m : find_text_question(name);
  }
  if (of.list()) return of.list()->tuple ? find_tuple_method(name) : find_list_method(name);
  if (of.dict()) return find_dict_method(name);
  return nullptr;
}

std::optional<Value> number_attribute(const Value& of, std::string_view name) {
  if (!of.number()) return std::nullopt;
  if (name == "real") return of.as<bool>() ? Value(*of.integer()) : of;
  if (name == "imag") return of.integer() ? Value(int64_t(0)) : Value(0.0);
  if (name == "numerator" && of.integer()) return Value(*of.integer());
  if (name == "denominator" && of.integer()) return Value(int64_t(1));
  if (name == "is_integer" && of.as<double>()) {
    const double d = *of.as<double>();
    return ObjectPtr(std::make_shared<Function>(
        "builtin_function_or_method",
        [d](Interpreter&, Args) { return Value(d == std::trunc(d) && std::isfinite(d)); }));
  }
  return std::nullopt;
}

// Every Python object has these; the sandbox lets nobody at them.
bool is_private(std::string_view name) {
  if (!name.starts_with("__")) return false;
  static constexpr std::array<std::string_view, 10> names = {
      "__class__", "__doc__", "__init__", "__dir__",    "__eq__",
      "__repr__",  "__str__", "__hash__", "__reduce__", "__getattribute__"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value unsafe(const Value& of, std::string_view name) {
  return undefined(fmt::format("access to attribute {} of {} object is unsafe.", in_quotes(name),
                               in_quotes(type_name(of))),
                   "SecurityError");
}

// getattr(of, name): nothing where there is no such attribute.
std::optional<Value> attribute(Interpreter& in, const Value& of, std::string_view name) {
  if (of.object()) {
    if (auto v = of.object()->attribute(in, name)) return v;
    // A namespace hides what every object has.
    if (dynamic_cast<Namespace*>(of.object())) return std::nullopt;
  }
  if (is_private(name) || mutates(of, name)) return unsafe(of, name);
  if (const MethodBody m = find_method(of, name)) {
    return ObjectPtr(std::make_shared<Function>(
        "builtin_function_or_method",
        [m, of](Interpreter& interpreter, Args args) { return m(interpreter, of, args); }));
  }
  return number_attribute(of, name);
}

// of[key]: nothing where Python raises TypeError or LookupError.
std::optional<Value> element(Interpreter& in, const Value& of, const Value& key) {
  if (of.dict()) {
    if (!hashable(key, in.budget())) return std::nullopt;
    const Value* v = of.dict()->find(key, in.budget());
    return v ? std::optional(*v) : std::nullopt;
  }
  const auto i = key.integer();
  if (!i) return std::nullopt;
  const bool has_items = of.text() || of.list() || (of.object() && of.object()->sequence());
  if (!has_items) return std::nullopt;
  const int64_t n = length(in, of);
  const int64_t at = *i < 0 ? *i + n : *i;
  if (at < 0 || at >= n) return std::nullopt;
  if (of.list()) return of.list()->items[size_t(at)];
  if (of.object()) return of.object()->item(at);
  const Text& t = *of.text();
  in.budget().charge_text(t.one_byte_each() ? 1 : t.size());
  return t.bytes(t.byte_of(at), t.byte_of(at + 1), in.budget());
}

}  // namespace

Value Interpreter::member(const Value& of, const Value& name) {
  if (const auto* u = of.as<UndefinedPtr>()) raise_undefined(**u);
  if (auto v = attribute(*this, of, name.text()->view())) return *v;
  if (auto v = element(*this, of, name)) return *v;
  return undefined_member(of, name);
}

Value Interpreter::item(const Value& of, const Value& key) {
  if (const auto* u = of.as<UndefinedPtr>()) raise_undefined(**u);
  if (auto v = element(*this, of, key)) return *v;
  if (key.text()) {
    if (auto v = attribute(*this, of, key.text()->view())) return *v;
  }
  return undefined_member(of, key);
}

}  // namespace nibble::jinja

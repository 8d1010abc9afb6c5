// SPDX-License-Identifier: MIT
// Filters about numbers, and `default`, `attr`.
#include <charconv>
#include <cmath>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace filters_number {
namespace {

// A number as Python's int() and float() read it from a string.
std::optional<int64_t> parse_int(std::string_view s, int base) {
  s = s.substr(0, stripped_end(s));
  s = s.substr(stripped_begin(s));
  bool negative = false;
  if (!s.empty() && (s[0] == '+' || s[0] == '-')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  std::string digits;
  if (s.size() > 2 && s[0] == '0' &&
      ((base == 16 && (s[1] | 0x20) == 'x') || (base == 8 && (s[1] | 0x20) == 'o') ||
       (base == 2 && (s[1] | 0x20) == 'b'))) {
    s.remove_prefix(2);
  }
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '_' && i > 0 && i + 1 < s.size() && s[i - 1] != '_') continue;
    digits += s[i];
  }
  int64_t v = 0;
  const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), v, base);
  if (digits.empty() || digits[0] == '-' || r.ptr != digits.data() + digits.size() ||
      r.ec == std::errc::invalid_argument) {
    return std::nullopt;
  }
  if (r.ec != std::errc()) raise("OverflowError", "a whole number beyond 64 bits");
  return negative ? -v : v;
}

std::optional<double> parse_float(std::string_view s) {
  s = s.substr(0, stripped_end(s));
  s = s.substr(stripped_begin(s));
  if (!s.empty() && s[0] == '+') s.remove_prefix(1);
  double v = 0;
  const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  if (r.ptr != s.data() + s.size() || s.empty()) return std::nullopt;
  if (r.ec == std::errc::result_out_of_range) return HUGE_VAL;
  if (r.ec != std::errc()) return std::nullopt;
  return v;
}

std::optional<int64_t> whole(double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (std::fabs(d) >= 9.2e18) raise("OverflowError", "a whole number beyond 64 bits");
  return int64_t(d);
}

Value int_filter(Interpreter&, const Value& v, Args& args) {
  const Params p("int", args, {"default", "base"});
  const int64_t base = p.integer(1, 10);
  if (v.text()) {
    if (base >= 2 && base <= 36) {
      if (const auto i = parse_int(v.text()->view(), int(base))) return *i;
    }
    if (const auto d = parse_float(v.text()->view())) {
      if (const auto i = whole(*d)) return *i;
    }
  } else if (v.integer()) {
    return *v.integer();
  } else if (v.as<double>()) {
    if (const auto i = whole(*v.as<double>())) return *i;
  } else if (v.is_undefined()) {
    raise_undefined(**v.as<UndefinedPtr>());
  }
  return p.value(0, int64_t(0));
}

Value float_filter(Interpreter&, const Value& v, Args& args) {
  const Params p("float", args, {"default"});
  if (v.text()) {
    if (const auto d = parse_float(v.text()->view())) return *d;
  } else if (v.number()) {
    return *v.number();
  } else if (v.is_undefined()) {
    raise_undefined(**v.as<UndefinedPtr>());
  }
  return p.value(0, 0.0);
}

Value abs_filter(Interpreter&, const Value& v, Args& args) {
  Params("abs", args, {});
  if (v.is_undefined()) raise_undefined(**v.as<UndefinedPtr>());
  if (const auto i = v.integer()) return *i < 0 ? unary_operator('-', *i) : Value(*i);
  if (const double* d = v.as<double>()) return std::fabs(*d);
  raise("TypeError", "bad operand type for abs(): '{}'", type_name(v));
}

// Python's round(): half to even, decided on the exact decimal value.
double round_to(double v, int digits) {
  if (!std::isfinite(v)) return v;
  if (digits >= 0)
    return std::strtod(fmt::format("{:.{}f}", v, std::min(digits, 330)).c_str(), nullptr);
  const double unit = std::pow(10.0, -digits);
  return std::nearbyint(v / unit) * unit;
}

Value round_filter(Interpreter&, const Value& v, Args& args) {
  const Params p("round", args, {"precision", "method"});
  const int digits = int(std::max<int64_t>(std::min<int64_t>(p.integer(0, 0), 400), -400));
  const std::string_view method = p[1] ? p.text(1).view() : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    raise("FilterArgumentError", "method must be common, ceil or floor");
  }
  if (v.is_undefined()) raise_undefined(**v.as<UndefinedPtr>());
  const auto d = v.number();
  if (!d) raise("TypeError", "type {} doesn't define __round__ method", type_name(v));
  if (method == "common") {
    if (v.integer() && digits >= 0) return *v.integer();
    if (v.integer()) return int64_t(round_to(*d, digits));
    return round_to(*d, digits);
  }
  const double unit = std::pow(10.0, digits);
  return (method == "ceil" ? std::ceil(*d * unit) : std::floor(*d * unit)) / unit;
}

Value default_filter(Interpreter& in, const Value& v, Args& args) {
  const Params p("default", args, {"default_value", "boolean"});
  if (v.is_undefined() || (p.flag(1, false, in) && !truth(v, in))) return p.value(0, Text());
  return v;
}

Value attr(Interpreter& in, const Value& v, Args& args) {
  const Params p("attr", args, {"name"}, 1);
  const Text& name = p.text(0);
  // A dict's keys are not its attributes.
  if (v.dict() && !find_dict_method(name.view())) return undefined_member(v, name);
  return in.member(v, name);
}

constexpr NamedFilter kFilters[] = {
    {"default", default_filter},
    {"d", default_filter},
    {"int", int_filter},
    {"float", float_filter},
    {"abs", abs_filter},
    {"round", round_filter},
    {"attr", attr},
};

}  // namespace
}  // namespace filters_number

FilterBody find_number_filter(std::string_view name) {
  return find_in(filters_number::kFilters, name);
}

}  // namespace nibble::jinja

// SPDX-License-Identifier: MIT
#include "tokenizer/jinja/operators.h"

#include <cmath>
#include <limits>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace {

[[noreturn]] void too_large() {
  raise("OverflowError", "a whole number beyond 64 bits, which are all nibble has");
}

[[noreturn]] void unsupported(const std::string& op, const Value& a, const Value& b) {
  raise("TypeError", "unsupported operand type(s) for {}: '{}' and '{}'",
        op == "**" ? "** or pow()" : op, type_name(a), type_name(b));
}

Value integers(const std::string& op, int64_t a, int64_t b) {
  int64_t r = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &r);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &r);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &r);
  } else if (op == "/") {
    if (b == 0) raise("ZeroDivisionError", "division by zero");
    return double(a) / double(b);
  } else if (op == "//") {
    return floor_divide(a, b);
  } else if (op == "%") {
    return modulo(a, b);
  } else {  // **
    if (b < 0) {
      if (a == 0) raise("ZeroDivisionError", "0.0 cannot be raised to a negative power");
      return std::pow(double(a), double(b));
    }
    r = 1;
    if (a == 0 || a == 1) return b == 0 ? int64_t(1) : a;
    if (a == -1) return b % 2 ? int64_t(-1) : int64_t(1);
    for (int64_t i = 0; i < b && !overflow; ++i) overflow = __builtin_mul_overflow(r, a, &r);
  }
  if (overflow) too_large();
  return r;
}

Value reals(const std::string& op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") {
    const double r = std::pow(a, b);
    if (a == 0 && b < 0) {
      raise("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    }
    if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) {
      raise("OverflowError", "(34, 'Numerical result out of range')");
    }
    return r;
  }
  if (b == 0) {
    raise("ZeroDivisionError", "{}",
          op == "/" ? "float division by zero"
                    : (op == "//" ? "float floor division by zero" : "float modulo"));
  }
  if (op == "/") return a / b;
  double m = std::fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0)) m += b;
  if (op == "%") return m;
  return std::floor((a - m) / b + 0.5);
}

Value add_texts(Interpreter& in, const Text& a, const Text& b) {
  const bool markup = a.markup() || b.markup();
  TextBuilder out(in.budget());
  out.add(markup ? html_escaped(in.budget(), a) : a);
  out.add(markup ? html_escaped(in.budget(), b) : b);
  return out.take(markup);
}

Value repeat_list(Interpreter& in, const List& list, int64_t times) {
  std::vector<Value> out;
  if (times > 0) {
    const auto n = int64_t(list.items.size());
    if (n > 0 && times > 10'000'000 / n) raise("MemoryError", "");
    in.budget().charge(n * times);
    for (int64_t t = 0; t < times; ++t) {
      out.insert(out.end(), list.items.begin(), list.items.end());
    }
  }
  return make_list(std::move(out), in.budget(), list.tuple);
}

Value add(Interpreter& in, const Value& a, const Value& b) {
  if (a.text()) {
    if (b.text()) return add_texts(in, *a.text(), *b.text());
    if (a.text()->markup()) unsupported("+", a, b);
    raise("TypeError", "can only concatenate str (not \"{}\") to str", type_name(b));
  }
  if (a.list()) {
    if (!b.list() || a.list()->tuple != b.list()->tuple) {
      const char* kind = a.list()->tuple ? "tuple" : "list";
      raise("TypeError", "can only concatenate {} (not \"{}\") to {}", kind, type_name(b), kind);
    }
    std::vector<Value> out = a.list()->items;
    out.insert(out.end(), b.list()->items.begin(), b.list()->items.end());
    return make_list(std::move(out), in.budget(), a.list()->tuple);
  }
  unsupported("+", a, b);
}

std::optional<int64_t> slice_index(const std::optional<Value>& v) {
  if (!v || v->is_none()) return std::nullopt;
  if (const auto i = v->integer()) return i;
  raise("TypeError", "slice indices must be integers or None or have an __index__ method");
}

struct Steps {
  int64_t start, step, count;
};

// Python's rules for where a slice begins and how many elements it has.
Steps steps_of(int64_t n, std::optional<int64_t> start, std::optional<int64_t> stop,
               std::optional<int64_t> step) {
  const int64_t by = std::max(step.value_or(1), -std::numeric_limits<int64_t>::max());
  if (by == 0) raise("ValueError", "slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
  const auto place = [&](std::optional<int64_t> at, int64_t otherwise) {
    if (!at) return otherwise;
    if (*at < 0) return *at < -n ? low : std::max(*at + n, low);
    return std::min(*at, high);
  };
  const int64_t from = place(start, by > 0 ? low : high);
  const int64_t to = place(stop, by > 0 ? high : low);
  int64_t count = 0;
  if (by > 0 && from < to) count = (to - from - 1) / by + 1;
  if (by < 0 && from > to) count = (from - to - 1) / -by + 1;
  return {from, by, count};
}

Text slice_text(Interpreter& in, const Text& t, const Steps& s) {
  if (s.count == 0) return t.markup() ? Text({}, {}, true) : Text();
  if (s.step == 1) {
    const size_t from = t.byte_of(s.start);
    const size_t to = t.byte_of(s.start + s.count);
    return t.bytes(from, to, in.budget());
  }
  std::vector<size_t> starts;  // of each character
  const std::string_view v = t.view();
  for (size_t i = 0; i < v.size(); ++i) {
    if ((uint8_t(v[i]) & 0xc0) != 0x80) starts.push_back(i);
  }
  starts.push_back(v.size());
  TextBuilder out(in.budget());
  for (int64_t k = 0, i = s.start; k < s.count; ++k, i += s.step) {
    out.add(t, starts[size_t(i)], starts[size_t(i) + 1]);
  }
  return out.take(t.markup());
}

}  // namespace

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) raise("ZeroDivisionError", "integer division or modulo by zero");
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) too_large();
    return -a;
  }
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t modulo(int64_t a, int64_t b) {
  if (b == 0) raise("ZeroDivisionError", "integer modulo by zero");
  if (b == -1) return 0;
  const int64_t m = a % b;
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

Value unary_operator(char op, const Value& v) {
  if (v.is_undefined()) raise_undefined(**v.as<UndefinedPtr>());
  if (const auto i = v.integer()) {
    if (op == '+') return *i;
    if (*i == std::numeric_limits<int64_t>::min()) too_large();
    return -*i;
  }
  if (const double* d = v.as<double>()) return op == '-' ? -*d : *d;
  raise("TypeError", "bad operand type for unary {}: '{}'", op, type_name(v));
}

Value binary_operator(Interpreter& in, const std::string& op, const Value& a, const Value& b) {
  if (a.text() && b.text() && op[0] == '+') return add_texts(in, *a.text(), *b.text());
  if (op == "%" && a.text()) return format_percent(in, *a.text(), b);
  if (a.is_undefined()) raise_undefined(**a.as<UndefinedPtr>());
  if (b.is_undefined()) raise_undefined(**b.as<UndefinedPtr>());
  if (a.integer() && b.integer()) return integers(op, *a.integer(), *b.integer());
  if (a.number() && b.number()) return reals(op, *a.number(), *b.number());
  if (op == "+") return add(in, a, b);
  if (op == "*") {
    const Value& thing = a.integer() ? b : a;
    const auto times = a.integer() ? a.integer() : b.integer();
    if (thing.text() || thing.list()) {
      if (!times) {
        raise("TypeError", "can't multiply sequence by non-int of type '{}'",
              type_name(&thing == &a ? b : a));
      }
      if (thing.text()) return repeated(in.budget(), *thing.text(), *times);
      return repeat_list(in, *thing.list(), *times);
    }
  }
  unsupported(op, a, b);
}

bool compare_operator(Interpreter& in, const std::string& op, const Value& a, const Value& b) {
  if (op[0] == '=') return equal(a, b, in.budget());
  if (op[0] == '!') return !equal(a, b, in.budget());
  if (op == "in") return contains(in, b, a);
  if (op == "not in") return !contains(in, b, a);
  if (op == "<") return less(a, b, in.budget(), "<");
  if (op == ">") return less(b, a, in.budget(), ">");
  const auto nan = [](const Value& v) { return v.as<double>() && std::isnan(*v.as<double>()); };
  if (nan(a) || nan(b)) return false;
  if (op == "<=") return !less(b, a, in.budget(), "<=");
  return !less(a, b, in.budget(), ">=");
}

Value slice(Interpreter& in, const Value& of, const std::optional<Value>& start,
            const std::optional<Value>& stop, const std::optional<Value>& step) {
  if (of.is_undefined()) raise_undefined(**of.as<UndefinedPtr>());
  if (of.dict()) raise("TypeError", "unhashable type: 'slice'");
  const bool has_items = of.text() || of.list() || (of.object() && of.object()->sequence());
  if (!has_items) raise("TypeError", "'{}' object is not subscriptable", type_name(of));
  const Steps s =
      steps_of(length(in, of), slice_index(start), slice_index(stop), slice_index(step));
  if (of.text()) return slice_text(in, *of.text(), s);
  std::vector<Value> out;
  in.budget().charge(s.count);
  for (int64_t k = 0, i = s.start; k < s.count; ++k, i += s.step) {
    out.push_back(of.list() ? of.list()->items[size_t(i)] : *of.object()->item(i));
  }
  return make_list(std::move(out), in.budget(), of.list() && of.list()->tuple);
}

}  // namespace nibble::jinja

// SPDX-License-Identifier: MIT
// What may stand behind `is`.
#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/operators.h"

namespace nibble::jinja {
namespace tests {
namespace {

int64_t remainder(const Value& v, int64_t by) {
  if (v.is_undefined()) raise_undefined(**v.as<UndefinedPtr>());
  if (const auto i = v.integer()) return modulo(*i, by);
  if (v.text()) raise("TypeError", "not all arguments converted during string formatting");
  raise("TypeError", "unsupported operand type(s) for %: '{}' and 'int'", type_name(v));
}

const Value& other(Args& args) {
  if (args.positional.size() != 1 || !args.named.empty()) {
    raise("TypeError", "the test expected one more value, got {}",
          args.positional.size() + args.named.size());
  }
  return args.positional[0];
}

bool odd(Interpreter&, const Value& v, Args&) { return remainder(v, 2) == 1; }
bool even(Interpreter&, const Value& v, Args&) { return remainder(v, 2) == 0; }
bool divisibleby(Interpreter&, const Value& v, Args& args) {
  const auto by = other(args).integer();
  if (!by) raise("TypeError", "divisibleby takes a whole number");
  return remainder(v, *by) == 0;
}
bool defined(Interpreter&, const Value& v, Args&) { return !v.is_undefined(); }
bool undefined_test(Interpreter&, const Value& v, Args&) { return v.is_undefined(); }
bool filter(Interpreter&, const Value& v, Args&) { return v.text() && is_filter(v.text()->view()); }
bool test(Interpreter&, const Value& v, Args&) { return v.text() && is_test(v.text()->view()); }
bool none(Interpreter&, const Value& v, Args&) { return v.is_none(); }
bool boolean(Interpreter&, const Value& v, Args&) { return v.as<bool>() != nullptr; }
bool is_false(Interpreter&, const Value& v, Args&) { return v.as<bool>() && !*v.as<bool>(); }
bool is_true(Interpreter&, const Value& v, Args&) { return v.as<bool>() && *v.as<bool>(); }
bool integer(Interpreter&, const Value& v, Args&) { return v.as<int64_t>() != nullptr; }
bool real(Interpreter&, const Value& v, Args&) { return v.as<double>() != nullptr; }
bool number(Interpreter&, const Value& v, Args&) { return v.number().has_value(); }
bool string(Interpreter&, const Value& v, Args&) { return v.text() != nullptr; }
bool mapping(Interpreter&, const Value& v, Args&) { return v.dict() != nullptr; }
bool sequence(Interpreter&, const Value& v, Args&) {
  // Undefined has a length and, by name, items.
  return v.text() || v.list() || v.dict() || v.is_undefined() ||
         (v.object() && v.object()->sequence());
}
bool iterable(Interpreter&, const Value& v, Args&) {
  return v.text() || v.list() || v.dict() || v.is_undefined() ||
         (v.object() && v.object()->iterate(*v.as<ObjectPtr>()));
}
bool callable(Interpreter&, const Value& v, Args&) {
  return v.is_undefined() || (v.object() && v.object()->callable());
}
bool lower_test(Interpreter& in, const Value& v, Args&) {
  Args no;
  const Text t = in.text_of(v);
  return *find_text_question("islower")(in, t, no).as<bool>();
}
bool upper_test(Interpreter& in, const Value& v, Args&) {
  Args no;
  const Text t = in.text_of(v);
  return *find_text_question("isupper")(in, t, no).as<bool>();
}
bool sameas(Interpreter&, const Value& v, Args& args) { return same_object(v, other(args)); }
bool escaped(Interpreter&, const Value& v, Args&) { return v.text() && v.text()->markup(); }
bool in_test(Interpreter& in, const Value& v, Args& args) { return contains(in, other(args), v); }
bool eq(Interpreter& in, const Value& v, Args& args) { return equal(v, other(args), in.budget()); }
bool ne(Interpreter& in, const Value& v, Args& args) { return !equal(v, other(args), in.budget()); }
bool gt(Interpreter& in, const Value& v, Args& args) {
  return compare_operator(in, ">", v, other(args));
}
bool ge(Interpreter& in, const Value& v, Args& args) {
  return compare_operator(in, ">=", v, other(args));
}
bool lt(Interpreter& in, const Value& v, Args& args) {
  return compare_operator(in, "<", v, other(args));
}
bool le(Interpreter& in, const Value& v, Args& args) {
  return compare_operator(in, "<=", v, other(args));
}

struct NamedTest {
  const char* name;
  TestBody body;
};
constexpr NamedTest kTests[] = {
    {"defined", defined},
    {"undefined", undefined_test},
    {"string", string},
    {"mapping", mapping},
    {"none", none},
    {"iterable", iterable},
    {"sequence", sequence},
    {"boolean", boolean},
    {"true", is_true},
    {"false", is_false},
    {"number", number},
    {"integer", integer},
    {"float", real},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisibleby},
    {"filter", filter},
    {"test", test},
    {"lower", lower_test},
    {"upper", upper_test},
    {"callable", callable},
    {"sameas", sameas},
    {"escaped", escaped},
    {"in", in_test},
    {"==", eq},
    {"eq", eq},
    {"equalto", eq},
    {"!=", ne},
    {"ne", ne},
    {">", gt},
    {"gt", gt},
    {"greaterthan", gt},
    {"ge", ge},
    {">=", ge},
    {"<", lt},
    {"lt", lt},
    {"lessthan", lt},
    {"<=", le},
    {"le", le},
};

}  // namespace
}  // namespace tests

TestBody find_test(std::string_view name) { return find_in(tests::kTests, name); }

}  // namespace nibble::jinja

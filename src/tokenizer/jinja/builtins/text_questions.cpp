// SPDX-License-Identifier: MIT
// Methods of str that ask something: startswith, find, count, isdigit, ...
#include <utf8proc.h>

#include <algorithm>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace text_questions {
namespace {

// The bytes between two optional positions in characters, and where they begin.
struct Window {
  std::string_view text;
  int64_t first;  // character
  bool valid;     // false when it begins behind the end
};

Window window(const Text& t, const Params& p, size_t start, size_t end) {
  const int64_t n = t.length();
  const auto place = [&](size_t i, int64_t otherwise) {
    if (!p.given(i)) return otherwise;
    const int64_t v = p.integer(i, 0);
    return v < 0 ? std::max<int64_t>(v + n, 0) : v;
  };
  const int64_t from = place(start, 0), to = std::min(place(end, n), n);
  if (from > to) return {{}, from, false};
  const size_t a = t.byte_of(from), b = t.byte_of(to);
  return {t.view().substr(a, b - a), from, true};
}

template <class Has>
Value begins_or_ends(Interpreter& in, const Value& self, Args& args, const char* name, Has has) {
  const Params p(name, args, {"prefix", "start", "end"}, 1);
  const Window w = window(*self.text(), p, 1, 2);
  const auto one = [&](const Value& v) {
    if (v.is_undefined()) raise_undefined(**v.as<UndefinedPtr>());
    if (!v.text()) {
      raise("TypeError", "{} first arg must be str or a tuple of str, not {}", name, type_name(v));
    }
    return w.valid && has(w.text, v.text()->view());
  };
  in.budget().charge_text(w.text.size() / 64);
  if (p[0]->list() && p[0]->list()->tuple) {
    const auto& items = p[0]->list()->items;
    return std::any_of(items.begin(), items.end(), one);
  }
  return one(*p[0]);
}

Value startswith(Interpreter& in, const Value& self, Args& args) {
  return begins_or_ends(in, self, args, "startswith",
                        [](std::string_view s, std::string_view x) { return s.starts_with(x); });
}
Value endswith(Interpreter& in, const Value& self, Args& args) {
  return begins_or_ends(in, self, args, "endswith",
                        [](std::string_view s, std::string_view x) { return s.ends_with(x); });
}

int64_t found(Interpreter& in, const Value& self, Args& args, const char* name, bool right) {
  const Params p(name, args, {"sub", "start", "end"}, 1);
  const std::string_view what = p.text(0).view();
  const Window w = window(*self.text(), p, 1, 2);
  if (!w.valid) return -1;
  in.budget().charge_text(w.text.size());
  const size_t at = right ? w.text.rfind(what) : w.text.find(what);
  if (at == w.text.npos) return -1;
  const std::string_view before = w.text.substr(0, at);
  return w.first + std::count_if(before.begin(), before.end(),
                                 [](char c) { return (uint8_t(c) & 0xc0) != 0x80; });
}

Value find(Interpreter& in, const Value& self, Args& args) {
  return found(in, self, args, "find", false);
}
Value rfind(Interpreter& in, const Value& self, Args& args) {
  return found(in, self, args, "rfind", true);
}
Value index(Interpreter& in, const Value& self, Args& args) {
  const int64_t at = found(in, self, args, "index", false);
  if (at < 0) raise("ValueError", "substring not found");
  return at;
}
Value rindex(Interpreter& in, const Value& self, Args& args) {
  const int64_t at = found(in, self, args, "rindex", true);
  if (at < 0) raise("ValueError", "substring not found");
  return at;
}

Value count(Interpreter& in, const Value& self, Args& args) {
  const Params p("count", args, {"sub", "start", "end"}, 1);
  const Window w = window(*self.text(), p, 1, 2);
  const std::string_view what = p.text(0).view();
  if (!w.valid) return int64_t(0);
  in.budget().charge_text(w.text.size());
  if (what.empty()) {
    return 1 + int64_t(std::count_if(w.text.begin(), w.text.end(),
                                     [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
  }
  int64_t n = 0;
  for (size_t at = 0; (at = w.text.find(what, at)) != w.text.npos; at += what.size()) ++n;
  return n;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(utf8proc_int32_t(c)); }
bool alpha(char32_t c) {
  return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO;
}
bool decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool digit(char32_t c) {
  return decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468);
}
bool numeric(char32_t c) {
  return category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO;
}

// Whether there is a character, and each passes.
template <class Passes>
Value every(Interpreter& in, const Value& self, Args& args, Passes passes) {
  Params("str method", args, {});
  const std::string_view s = self.text()->view();
  in.budget().charge_text(s.size());
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = decode_valid(s.data() + i);
    if (!passes(c.value)) return false;
    i += c.length;
  }
  return !s.empty();
}

Value isalpha(Interpreter& in, const Value& self, Args& args) {
  return every(in, self, args, alpha);
}
Value isdecimal(Interpreter& in, const Value& self, Args& args) {
  return every(in, self, args, decimal);
}
Value isdigit(Interpreter& in, const Value& self, Args& args) {
  return every(in, self, args, digit);
}
Value isnumeric(Interpreter& in, const Value& self, Args& args) {
  return every(in, self, args, numeric);
}
Value isalnum(Interpreter& in, const Value& self, Args& args) {
  return every(in, self, args, [](char32_t c) { return alpha(c) || digit(c) || numeric(c); });
}
Value isspace(Interpreter& in, const Value& self, Args& args) {
  return every(in, self, args, is_space);
}
Value isascii(Interpreter& in, const Value& self, Args& args) {
  return self.text()->empty() ||
         *every(in, self, args, [](char32_t c) { return c < 0x80; }).as<bool>();
}
Value isprintable(Interpreter& in, const Value& self, Args& args) {
  return self.text()->empty() || *every(in, self, args, [](char32_t c) {
                                    return c == ' ' || (category(c) != UTF8PROC_CATEGORY_CN &&
                                                        category(c) < UTF8PROC_CATEGORY_ZS);
                                  }).as<bool>();
}
Value isidentifier(Interpreter& in, const Value& self, Args& args) {
  bool first = true;
  return every(in, self, args, [&](char32_t c) {
    const bool fits = alpha(c) || c == '_' || (!first && decimal(c));
    first = false;
    return fits;
  });
}

// At least one letter of this case and none of the other.
Value one_case(Interpreter& in, const Value& self, Args& args, utf8proc_category_t wanted) {
  bool any = false;
  const bool all =
      *every(in, self, args, [&](char32_t c) {
         const auto k = category(c);
         any |= k == wanted;
         return k == wanted || (k != UTF8PROC_CATEGORY_LU && k != UTF8PROC_CATEGORY_LL &&
                                k != UTF8PROC_CATEGORY_LT);
       }).as<bool>();
  return all && any;
}
Value islower(Interpreter& in, const Value& self, Args& args) {
  return one_case(in, self, args, UTF8PROC_CATEGORY_LL);
}
Value isupper(Interpreter& in, const Value& self, Args& args) {
  return one_case(in, self, args, UTF8PROC_CATEGORY_LU);
}
Value istitle(Interpreter& in, const Value& self, Args& args) {
  bool inside = false, any = false;
  const bool all = *every(in, self, args, [&](char32_t c) {
                      const auto k = category(c);
                      const bool up = k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LT;
                      const bool low = k == UTF8PROC_CATEGORY_LL;
                      const bool fits = up ? !inside : !low || inside;
                      inside = up || low;
                      any |= inside;
                      return fits;
                    }).as<bool>();
  return all && any;
}

constexpr NamedMethod kMethods[] = {
    {"startswith", startswith},
    {"endswith", endswith},
    {"find", find},
    {"rfind", rfind},
    {"index", index},
    {"rindex", rindex},
    {"count", count},
    {"isalpha", isalpha},
    {"isdecimal", isdecimal},
    {"isdigit", isdigit},
    {"isnumeric", isnumeric},
    {"isalnum", isalnum},
    {"isspace", isspace},
    {"isascii", isascii},
    {"isprintable", isprintable},
    {"islower", islower},
    {"isupper", isupper},
    {"istitle", istitle},
    {"isidentifier", isidentifier},
};

}  // namespace
}  // namespace text_questions

MethodBody find_text_question(std::string_view name) {
  return find_in(text_questions::kMethods, name);
}

}  // namespace nibble::jinja

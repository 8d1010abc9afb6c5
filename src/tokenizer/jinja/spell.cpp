// SPDX-License-Identifier: MIT
#include "tokenizer/jinja/spell.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/levels.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace {

bool printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

// One character of a string as repr() writes it; empty when it stays as it is.
std::string repr_escape(char32_t c, char quote) {
  switch (c) {
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\\': return "\\\\";
    default: break;
  }
  if (c == char32_t(quote)) return std::string("\\") + quote;
  if (printable(c)) return {};
  const auto n = uint32_t(c);
  if (n < 0x100) return fmt::format("\\x{:02x}", n);
  if (n < 0x10000) return fmt::format("\\u{:04x}", n);
  return fmt::format("\\U{:08x}", n);
}

char quote_for(std::string_view s) {
  return s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
}

void add_quoted(TextBuilder& out, const Text& t) {
  const std::string_view s = t.view();
  const char quote = quote_for(s);
  out.outside({&quote, 1});
  size_t done = 0;
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = decode_valid(s.data() + i);
    if (const std::string e = repr_escape(c.value, quote); !e.empty()) {
      out.add(t, done, i);
      out.add(e, t.origin_at(i));
      done = i + c.length;
    }
    i += c.length;
  }
  out.add(t, done, s.size());
  out.outside({&quote, 1});
}

void add_list(TextBuilder& out, Interpreter& in, const List& list) {
  out.outside(list.tuple ? "(" : "[");
  bool first = true;
  for (const Value& v : list.items) {
    if (!first) out.outside(", ");
    first = false;
    add_repr(out, in, v);
  }
  if (list.tuple && list.items.size() == 1) out.outside(",");
  out.outside(list.tuple ? ")" : "]");
}

}  // namespace

std::string in_quotes(std::string_view s) {
  const char quote = quote_for(s);
  std::string out(1, quote);
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = decode_valid(s.data() + i);
    const std::string e = repr_escape(c.value, quote);
    out += e.empty() ? std::string(s.substr(i, c.length)) : e;
    i += c.length;
  }
  return out + quote;
}

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  const std::string s(buffer, end.ptr);
  const size_t e = s.find('e');
  const int exponent = std::stoi(s.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02d}", s.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  if (out.find('.') == out.npos) out += ".0";
  return out;
}

std::string plain_repr(const Value& v) {
  if (v.is_none()) return "None";
  if (const bool* b = v.as<bool>()) return *b ? "True" : "False";
  if (const int64_t* i = v.as<int64_t>()) return fmt::format("{}", *i);
  if (const double* d = v.as<double>()) return float_repr(*d);
  if (v.text()) return in_quotes(v.text()->view());
  return "<" + type_name(v) + ">";
}

void add_repr(TextBuilder& out, Interpreter& in, const Value& v) {
  out.budget().charge(1);
  const Interpreter::Level level(in);  // views of dicts that hold views are as deep as one likes
  if (v.text()) {
    if (v.text()->markup()) out.outside("Markup(");
    add_quoted(out, *v.text());
    if (v.text()->markup()) out.outside(")");
  } else if (v.list()) {
    add_list(out, in, *v.list());
  } else if (v.dict()) {
    out.outside("{");
    bool first = true;
    for (const auto& [key, value] : v.dict()->items) {
      if (!first) out.outside(", ");
      first = false;
      add_repr(out, in, key);
      out.outside(": ");
      add_repr(out, in, value);
    }
    out.outside("}");
  } else if (v.is_undefined()) {
    out.written("Undefined");
  } else if (v.object()) {
    out.outside(v.object()->repr(in));
  } else {
    // Numbers and constants carry no text from outside.
    out.written(plain_repr(v));
  }
}

Text repr(Interpreter& in, const Value& v) {
  TextBuilder out(in.budget());
  add_repr(out, in, v);
  return out.take();
}

Text spell(Interpreter& in, const Value& v) {
  if (v.text()) return *v.text();
  if (v.is_undefined()) return {};
  return repr(in, v);
}

Text html_escaped(Budget& budget, const Text& t) {
  if (t.markup()) return t;
  TextBuilder out(budget);
  const std::string_view s = t.view();
  size_t done = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    const char* e = s[i] == '&'    ? "&amp;"
                    : s[i] == '<'  ? "&lt;"
                    : s[i] == '>'  ? "&gt;"
                    : s[i] == '"'  ? "&#34;"
                    : s[i] == '\'' ? "&#39;"
                                   : nullptr;
    if (!e) continue;
    out.add(t, done, i);
    out.add(e, t.origin_at(i));
    done = i + 1;
  }
  out.add(t, done, s.size());
  return out.take(true);
}

}  // namespace nibble::jinja

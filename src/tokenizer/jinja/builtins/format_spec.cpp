// SPDX-License-Identifier: MIT
// format(value, spec): [[fill]align][sign][#][0][width][grouping][.precision][type]
#include "tokenizer/jinja/builtins/format_spec.h"

#include <cmath>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/spell.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace {

struct Spec {
  NumberForm number;
  Text fill = Text::written(" ");
  char align = 0;
  int64_t width = 0;
};

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

int64_t read_count(std::string_view s, size_t& i) {
  int64_t n = 0;
  for (; i < s.size() && s[i] >= '0' && s[i] <= '9'; ++i) {
    n = n * 10 + (s[i] - '0');
    if (n > 1'000'000'000) raise("ValueError", "Too many decimal digits in format string");
  }
  return n;
}

Spec parse_spec(const Text& spec, const Value& v, Budget& budget) {
  Spec out;
  const std::string_view s = spec.view();
  size_t i = 0;
  if (!s.empty()) {
    const size_t first = decode_valid(s.data()).length;
    if (first < s.size() && is_align(s[first])) {
      out.fill = spec.bytes(0, first, budget);
      out.align = s[first];
      i = first + 1;
    } else if (is_align(s[0])) {
      out.align = s[0];
      i = 1;
    }
  }
  if (i < s.size() && (s[i] == '+' || s[i] == '-' || s[i] == ' ')) out.number.sign = s[i++];
  if (i < s.size() && s[i] == '#') out.number.alternate = true, ++i;
  if (i < s.size() && s[i] == '0') {
    if (!out.align) {
      out.fill = Text::written("0");
      out.align = v.text() ? '<' : '=';
    }
    ++i;
  }
  out.width = read_count(s, i);
  if (i < s.size() && (s[i] == ',' || s[i] == '_')) out.number.grouping = s[i++];
  if (i < s.size() && s[i] == '.') {
    const size_t at = ++i;
    const int64_t n = read_count(s, i);
    if (i == at) raise("ValueError", "Format specifier missing precision");
    out.number.precision = int(std::min<int64_t>(n, 1'000'000));
  }
  if (i < s.size()) out.number.kind = s[i++];
  if (i < s.size()) {
    raise("ValueError", "Invalid format specifier '{}' for object of type '{}'", s, type_name(v));
  }
  return out;
}

std::string grouped(std::string digits, char mark, size_t each) {
  size_t end = digits.find_first_not_of("0123456789abcdefABCDEF");
  if (end == digits.npos) end = digits.size();
  for (size_t i = end; i > each;) {
    i -= each;
    digits.insert(i, 1, mark);
  }
  return digits;
}

std::string in_base(uint64_t v, unsigned base, bool capitals) {
  const char* digits = capitals ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), digits[v % base]);
    v /= base;
  } while (v);
  return out;
}

[[noreturn]] void unknown(char kind, const Value& v) {
  raise("ValueError", "Unknown format code '{}' for object of type '{}'", kind, type_name(v));
}

Text aligned(Interpreter& in, const Spec& spec, const std::string& sign, const std::string& body) {
  const char align = spec.align ? spec.align : '>';
  if (align == '=') {
    const Text digits =
        pad(in.budget(), Text::written(body), spec.width - int64_t(sign.size()), spec.fill, '>');
    TextBuilder out(in.budget());
    out.written(sign);
    out.add(digits);
    return out.take();
  }
  return pad(in.budget(), Text::written(sign + body), spec.width, spec.fill, align);
}

}  // namespace

std::string sign_of(bool negative, char wanted) {
  if (negative) return "-";
  return wanted == '-' ? "" : std::string(1, wanted);
}

std::string integer_digits(int64_t v, const NumberForm& form, bool& negative) {
  negative = v < 0;
  const uint64_t magnitude = negative ? uint64_t(0) - uint64_t(v) : uint64_t(v);
  const unsigned base = form.kind == 'b'                       ? 2
                        : form.kind == 'o'                     ? 8
                        : form.kind == 'x' || form.kind == 'X' ? 16
                                                               : 10;
  std::string out = in_base(magnitude, base, form.kind == 'X');
  if (form.grouping) out = grouped(out, form.grouping, base == 10 ? 3 : 4);
  if (form.alternate && base != 10) out = std::string("0") + form.kind + out;
  return out;
}

std::string real_digits(double v, const NumberForm& form, bool& negative) {
  negative = std::signbit(v) && !std::isnan(v);
  v = std::fabs(v);
  std::string out;
  const int precision = form.precision < 0 ? 6 : std::min(form.precision, 400);
  const bool capitals = form.kind == 'E' || form.kind == 'F' || form.kind == 'G';
  if (std::isnan(v) || std::isinf(v)) {
    out = std::isnan(v) ? "nan" : "inf";
  } else if (form.kind == '%') {
    out = fmt::format("{:.{}f}", v * 100, precision);
  } else if (form.kind == 'e' || form.kind == 'E') {
    out = fmt::format("{:.{}e}", v, precision);
  } else if (form.kind == 'f' || form.kind == 'F') {
    out = fmt::format("{:.{}f}", v, precision);
  } else if (form.kind == 0 && form.precision < 0) {
    out = float_repr(v);
  } else {
    out = fmt::format("{:.{}g}", v, std::max(precision, 1));
    if (form.kind == 0 && out.find_first_of(".e") == out.npos) out += ".0";
  }
  if (capitals) {
    for (char& c : out) c = char(c >= 'a' && c <= 'z' ? c - 32 : c);
  }
  if (form.grouping) out = grouped(out, form.grouping, 3);
  if (form.kind == '%') out += '%';
  return out;
}

Text format_value(Interpreter& in, const Value& v, const Text& spec_text) {
  if (spec_text.empty()) return in.text_of(v);
  if (!v.text() && !v.number()) {
    if (v.is_undefined())
      raise("TypeError", "unsupported format string passed to Undefined.__format__");
    raise("TypeError", "unsupported format string passed to {}.__format__", type_name(v));
  }
  const Spec spec = parse_spec(spec_text, v, in.budget());
  const char kind = spec.number.kind;
  if (v.text()) {
    if (kind && kind != 's') unknown(kind, v);
    if (spec.align == '=') {
      raise("ValueError", "'=' alignment not allowed in string format specifier");
    }
    Text t = *v.text();
    if (spec.number.precision >= 0 && t.length() > spec.number.precision) {
      t = t.bytes(0, t.byte_of(spec.number.precision), in.budget());
    }
    return pad(in.budget(), t, spec.width, spec.fill, spec.align ? spec.align : '<');
  }
  bool negative = false;
  const std::string_view real_kinds = "eEfFgG%";
  if (v.integer() && (kind == 0 || real_kinds.find(kind) == real_kinds.npos)) {
    if (kind == 'c') {
      const int64_t n = *v.integer();
      if (n < 0 || n > 0x10ffff || (n >= 0xd800 && n < 0xe000)) {
        raise("OverflowError", "%c arg not in range(0x110000)");
      }
      std::string c;
      append_utf8(c, char32_t(n));
      return pad(in.budget(), Text::written(c), spec.width, spec.fill,
                 spec.align ? spec.align : '<');
    }
    if (kind && std::string_view("bdonxX").find(kind) == std::string_view::npos) unknown(kind, v);
    if (spec.number.precision >= 0) {
      raise("ValueError", "Precision not allowed in integer format specifier");
    }
    const std::string body = integer_digits(*v.integer(), spec.number, negative);
    return aligned(in, spec, sign_of(negative, spec.number.sign), body);
  }
  if (kind && kind != 'n' && real_kinds.find(kind) == real_kinds.npos) unknown(kind, v);
  const std::string body = real_digits(*v.number(), spec.number, negative);
  return aligned(in, spec, sign_of(negative, spec.number.sign), body);
}

}  // namespace nibble::jinja

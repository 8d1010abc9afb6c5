// SPDX-License-Identifier: MIT
// Methods of str that make new texts.
#include <utf8proc.h>

#include <algorithm>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/spell.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace text_methods {
namespace {

using Texts = std::vector<Text>;

Value list_of(Interpreter& in, const Texts& texts, bool tuple = false) {
  std::vector<Value> out(texts.begin(), texts.end());
  return make_list(std::move(out), in.budget(), tuple);
}

// Runs of white space separate; none at the ends count.
Texts split_space(Interpreter& in, const Text& t, int64_t most) {
  Texts out;
  const std::string_view s = t.view();
  size_t at = stripped_begin(s);
  while (at < s.size()) {
    if (most >= 0 && int64_t(out.size()) >= most) {
      out.push_back(t.bytes(at, s.size(), in.budget()));
      break;
    }
    size_t end = at;
    while (end < s.size()) {
      const CodePoint c = decode_valid(s.data() + end);
      if (is_space(c.value)) break;
      end += c.length;
    }
    out.push_back(t.bytes(at, end, in.budget()));
    at = end + stripped_begin(s.substr(end));
  }
  return out;
}

Texts split_space_right(Interpreter& in, const Text& t, int64_t most) {
  Texts out;
  const std::string_view s = t.view();
  size_t end = stripped_end(s);
  while (end > 0) {
    if (most >= 0 && int64_t(out.size()) >= most) {
      out.push_back(t.bytes(0, end, in.budget()));
      break;
    }
    size_t at = end;
    while (at > 0) {
      size_t i = at - 1;
      while (i > 0 && (uint8_t(s[i]) & 0xc0) == 0x80) --i;
      if (is_space(decode_valid(s.data() + i).value)) break;
      at = i;
    }
    out.push_back(t.bytes(at, end, in.budget()));
    end = stripped_end(s.substr(0, at));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Texts split_by(Interpreter& in, const Text& t, std::string_view by, int64_t most, bool right) {
  if (by.empty()) raise("ValueError", "empty separator");
  Texts out;
  const std::string_view s = t.view();
  in.budget().charge_text(s.size());
  if (right) {
    size_t end = s.size();
    while (most < 0 || int64_t(out.size()) < most) {
      const size_t at = end < by.size() ? s.npos : s.rfind(by, end - by.size());
      if (at == s.npos) break;
      out.push_back(t.bytes(at + by.size(), end, in.budget()));
      end = at;
    }
    out.push_back(t.bytes(0, end, in.budget()));
    std::reverse(out.begin(), out.end());
    return out;
  }
  size_t start = 0;
  while (most < 0 || int64_t(out.size()) < most) {
    const size_t at = s.find(by, start);
    if (at == s.npos) break;
    out.push_back(t.bytes(start, at, in.budget()));
    start = at + by.size();
  }
  out.push_back(t.bytes(start, s.size(), in.budget()));
  return out;
}

Value split_any(Interpreter& in, const Value& self, Args& args, bool right) {
  const Params p(right ? "rsplit" : "split", args, {"sep", "maxsplit"});
  const int64_t most = p.integer(1, -1);
  const Text& t = *self.text();
  if (!p.given(0)) {
    return list_of(in, right ? split_space_right(in, t, most) : split_space(in, t, most));
  }
  if (!p[0]->text()) raise("TypeError", "must be str or None, not {}", type_name(*p[0]));
  return list_of(in, split_by(in, t, p[0]->text()->view(), most, right));
}

Value split(Interpreter& in, const Value& self, Args& args) {
  return split_any(in, self, args, false);
}
Value rsplit(Interpreter& in, const Value& self, Args& args) {
  return split_any(in, self, args, true);
}

Value splitlines(Interpreter& in, const Value& self, Args& args) {
  const Params p("splitlines", args, {"keepends"});
  return list_of(in, split_lines(in.budget(), *self.text(), p.flag(0, false, in)));
}

Value partition_at(Interpreter& in, const Text& t, const Text& by, bool right) {
  if (by.empty()) raise("ValueError", "empty separator");
  const size_t at = right ? t.view().rfind(by.view()) : t.view().find(by.view());
  if (at == std::string_view::npos) {
    return list_of(in, right ? Texts{Text(), Text(), t} : Texts{t, Text(), Text()}, true);
  }
  return list_of(
      in, {t.bytes(0, at, in.budget()), by, t.bytes(at + by.size(), t.size(), in.budget())}, true);
}
Value partition(Interpreter& in, const Value& self, Args& args) {
  return partition_at(in, *self.text(), Params("partition", args, {"sep"}, 1).text(0), false);
}
Value rpartition(Interpreter& in, const Value& self, Args& args) {
  return partition_at(in, *self.text(), Params("rpartition", args, {"sep"}, 1).text(0), true);
}

Value strip_side(Interpreter& in, const Value& self, Args& args, bool left, bool right) {
  const Params p("strip", args, {"chars"});
  return strip(in.budget(), *self.text(), p[0], left, right);
}
Value strip_both(Interpreter& in, const Value& self, Args& args) {
  return strip_side(in, self, args, true, true);
}
Value lstrip(Interpreter& in, const Value& self, Args& args) {
  return strip_side(in, self, args, true, false);
}
Value rstrip(Interpreter& in, const Value& self, Args& args) {
  return strip_side(in, self, args, false, true);
}

Value replace_all(Interpreter& in, const Value& self, Args& args) {
  const Params p("replace", args, {"old", "new", "count"}, 2);
  return replace(in.budget(), *self.text(), p.text(0), p.text(1), p.integer(2, -1));
}

Value join(Interpreter& in, const Value& self, Args& args) {
  const Params p("join", args, {"iterable"}, 1);
  if (p[0]->is_none() || p[0]->number()) raise("TypeError", "can only join an iterable");
  return join_texts(in, *self.text(), to_vector(in, *p[0]));
}

Value removeprefix(Interpreter& in, const Value& self, Args& args) {
  const Params p("removeprefix", args, {"prefix"}, 1);
  const Text& t = *self.text();
  return t.view().starts_with(p.text(0).view()) ? t.bytes(p.text(0).size(), t.size(), in.budget())
                                                : t;
}
Value removesuffix(Interpreter& in, const Value& self, Args& args) {
  const Params p("removesuffix", args, {"suffix"}, 1);
  const Text& t = *self.text();
  return t.view().ends_with(p.text(0).view()) ? t.bytes(0, t.size() - p.text(0).size(), in.budget())
                                              : t;
}

Value to_upper(Interpreter& in, const Value& self, Args& args) {
  Params("upper", args, {});
  return upper(in.budget(), *self.text());
}
Value to_lower(Interpreter& in, const Value& self, Args& args) {
  Params("lower", args, {});
  return lower(in.budget(), *self.text());
}
Value to_capital(Interpreter& in, const Value& self, Args& args) {
  Params("capitalize", args, {});
  return capitalize(in.budget(), *self.text());
}

bool is_letter(std::string_view s, size_t at) {
  return UnicodeTable::instance().char_class(decode_valid(s.data() + at).value) ==
         CharClass::letter;
}

// Letters behind a letter become small, the others title case.
Value title(Interpreter& in, const Value& self, Args& args) {
  Params("title", args, {});
  const Text& t = *self.text();
  const std::string_view s = t.view();
  TextBuilder out(in.budget());
  bool inside = false;
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = decode_valid(s.data() + i);
    std::string piece;
    const auto n = utf8proc_int32_t(c.value);
    if (n == 0xdf && !inside) {
      piece = "Ss";
    } else {
      append_utf8(piece, char32_t(inside ? utf8proc_tolower(n) : utf8proc_totitle(n)));
    }
    out.add(piece, t.origin_at(i));
    inside = is_letter(s, i);
    i += c.length;
  }
  return out.take(t.markup());
}

Value swapcase(Interpreter& in, const Value& self, Args& args) {
  Params("swapcase", args, {});
  const Text& t = *self.text();
  const std::string_view s = t.view();
  TextBuilder out(in.budget());
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = decode_valid(s.data() + i);
    const auto n = utf8proc_int32_t(c.value);
    std::string piece;
    append_utf8(piece,
                char32_t(utf8proc_toupper(n) != n ? utf8proc_toupper(n) : utf8proc_tolower(n)));
    out.add(piece, t.origin_at(i));
    i += c.length;
  }
  return out.take(t.markup());
}

Value justify(Interpreter& in, const Value& self, Args& args, char align) {
  const Params p("ljust", args, {"width", "fillchar"}, 1);
  const Text fill = p[1] ? p.text(1) : Text::written(" ");
  if (fill.length() != 1) {
    raise("TypeError", "The fill character must be exactly one character long");
  }
  return pad(in.budget(), *self.text(), p.integer(0, 0), fill, align);
}
Value ljust(Interpreter& in, const Value& self, Args& args) { return justify(in, self, args, '<'); }
Value rjust(Interpreter& in, const Value& self, Args& args) { return justify(in, self, args, '>'); }
Value center(Interpreter& in, const Value& self, Args& args) {
  return justify(in, self, args, 'c');
}

Value zfill(Interpreter& in, const Value& self, Args& args) {
  const Params p("zfill", args, {"width"}, 1);
  const Text& t = *self.text();
  const bool sign = !t.empty() && (t.view()[0] == '+' || t.view()[0] == '-');
  const Text digits = t.bytes(sign ? 1 : 0, t.size(), in.budget());
  TextBuilder out(in.budget());
  if (sign) out.add(t, 0, 1);
  out.add(pad(in.budget(), digits, p.integer(0, 0) - (sign ? 1 : 0), Text::written("0"), '>'));
  return out.take();
}

Value expandtabs(Interpreter& in, const Value& self, Args& args) {
  const Params p("expandtabs", args, {"tabsize"});
  const int64_t size = p.integer(0, 8);
  const Text& t = *self.text();
  const std::string_view s = t.view();
  TextBuilder out(in.budget());
  int64_t column = 0;
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = decode_valid(s.data() + i);
    if (c.value == '\t') {
      const int64_t n = size > 0 ? size - column % size : 0;
      out.add(repeated(in.budget(), Text(" ", t.origin_at(i)), n));
      column += n;
    } else {
      out.add(t, i, i + c.length);
      column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    }
    i += c.length;
  }
  return out.take();
}

Value format(Interpreter& in, const Value& self, Args& args) {
  return format_braces(in, *self.text(), args);
}

Value format_map(Interpreter& in, const Value& self, Args& args) {
  const Params p("format_map", args, {"mapping"}, 1);
  if (!p[0]->dict()) raise("TypeError", "format_map() takes a mapping, not {}", type_name(*p[0]));
  Args named;
  for (const auto& [k, v] : p[0]->dict()->items) {
    if (k.text()) named.named.emplace_back(std::string(k.text()->view()), v);
  }
  return format_braces(in, *self.text(), named);
}

Value unsupported(Interpreter&, const Value&, Args&) {
  raise("NotImplementedError",
        "encode, maketrans and translate are not part of nibble's templates");
}

constexpr NamedMethod kMethods[] = {
    {"split", split},
    {"strip", strip_both},
    {"rstrip", rstrip},
    {"lstrip", lstrip},
    {"replace", replace_all},
    {"join", join},
    {"upper", to_upper},
    {"lower", to_lower},
    {"casefold", to_lower},
    {"title", title},
    {"capitalize", to_capital},
    {"swapcase", swapcase},
    {"format", format},
    {"format_map", format_map},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"partition", partition},
    {"rpartition", rpartition},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"ljust", ljust},
    {"rjust", rjust},
    {"center", center},
    {"zfill", zfill},
    {"expandtabs", expandtabs},
    {"encode", unsupported},
    {"maketrans", unsupported},
    {"translate", unsupported},
};

}  // namespace
}  // namespace text_methods

MethodBody find_text_method(std::string_view name) { return find_in(text_methods::kMethods, name); }

}  // namespace nibble::jinja

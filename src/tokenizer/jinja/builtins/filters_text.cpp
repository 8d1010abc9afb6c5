// SPDX-License-Identifier: MIT
// Filters that make text.
#include <algorithm>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/spell.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace filters_text {
namespace {

Value upper_filter(Interpreter& in, const Value& v, Args& args) {
  Params("upper", args, {});
  return upper(in.budget(), soft_text(in, v));
}
Value lower_filter(Interpreter& in, const Value& v, Args& args) {
  Params("lower", args, {});
  return lower(in.budget(), soft_text(in, v));
}
Value capitalize_filter(Interpreter& in, const Value& v, Args& args) {
  Params("capitalize", args, {});
  return capitalize(in.budget(), soft_text(in, v));
}

// Words begin behind white space, '-' and opening brackets.
Value title(Interpreter& in, const Value& v, Args& args) {
  Params("title", args, {});
  const Text t = soft_text(in, v);
  const std::string_view s = t.view();
  TextBuilder out(in.budget());
  const auto word = [&](size_t from, size_t to) {
    if (from == to) return;
    const size_t second = from + decode_valid(s.data() + from).length;
    out.add(upper(in.budget(), t.bytes(from, second, in.budget())));
    out.add(lower(in.budget(), t.bytes(second, to, in.budget())));
  };
  size_t start = 0;
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = decode_valid(s.data() + i);
    if (is_space(c.value) || (c.value < 0x80 && std::string_view("-({[<").find(char(c.value)) !=
                                                    std::string_view::npos)) {
      word(start, i);
      out.add(t, i, i + c.length);
      start = i + c.length;
    }
    i += c.length;
  }
  word(start, s.size());
  return out.take();
}

Value trim(Interpreter& in, const Value& v, Args& args) {
  const Params p("trim", args, {"chars"});
  return strip(in.budget(), soft_text(in, v), p[0], true, true);
}

Value replace_filter(Interpreter& in, const Value& v, Args& args) {
  const Params p("replace", args, {"old", "new", "count"}, 2);
  const int64_t count = p.given(2) ? p.integer(2, -1) : -1;
  return replace(in.budget(), soft_text(in, v).with_markup(false), soft_text(in, *p[0]),
                 soft_text(in, *p[1]), count)
      .with_markup(false);
}

Value join(Interpreter& in, const Value& v, Args& args) {
  const Params p("join", args, {"d", "attribute"});
  const Text separator = p[0] ? soft_text(in, *p[0]) : Text();
  TextBuilder out(in.budget());
  const IteratorPtr it = iterate(in, v);
  bool first = true;
  for (Value item; it->next(in, item);) {
    if (!first) out.add(separator);
    first = false;
    if (p.given(1)) item = attribute_path(in, item, *p[1]);
    out.add(soft_text(in, item));
  }
  return out.take();
}

Value string(Interpreter& in, const Value& v, Args& args) {
  Params("string", args, {});
  return soft_text(in, v);
}

Value safe(Interpreter& in, const Value& v, Args& args) {
  Params("safe", args, {});
  return soft_text(in, v).with_markup(true);
}

Value escape(Interpreter& in, const Value& v, Args& args) {
  Params("escape", args, {});
  return html_escaped(in.budget(), soft_text(in, v));
}
Value forceescape(Interpreter& in, const Value& v, Args& args) {
  Params("forceescape", args, {});
  return html_escaped(in.budget(), soft_text(in, v).with_markup(false));
}

Value indent(Interpreter& in, const Value& v, Args& args) {
  const Params p("indent", args, {"width", "first", "blank"});
  if (!v.text()) {
    if (v.is_undefined()) raise_undefined(**v.as<UndefinedPtr>());
    raise("TypeError", "unsupported operand type(s) for +=: '{}' and 'str'", type_name(v));
  }
  const Text by = p[0] && p[0]->text() ? *p[0]->text()
                                       : repeated(in.budget(), Text::written(" "), p.integer(0, 4));
  const bool first = p.flag(1, false, in), blank = p.flag(2, false, in);
  TextBuilder with_end(in.budget());
  with_end.add(*v.text());
  with_end.written("\n");
  const std::vector<Text> lines = split_lines(in.budget(), with_end.take(), false);
  TextBuilder out(in.budget());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.written("\n");
    if (i == 0 ? first : blank || !lines[i].empty()) out.add(by);
    out.add(lines[i]);
  }
  return out.take(v.text()->markup());
}

Value truncate(Interpreter& in, const Value& v, Args& args) {
  const Params p("truncate", args, {"length", "killwords", "end", "leeway"});
  const int64_t most = p.integer(0, 255);
  const Text end = p[2] ? p.text(2) : Text::written("...");
  const int64_t leeway = p.given(3) ? p.integer(3, 5) : 5;
  if (most < end.length()) {
    raise("AssertionError", "expected length >= {}, got {}", end.length(), most);
  }
  if (leeway < 0) raise("AssertionError", "expected leeway >= 0, got {}", leeway);
  if (length(in, v) <= most + leeway) return v;
  if (!v.text()) raise("TypeError", "truncate takes a string, not {}", type_name(v));
  Text cut = v.text()->bytes(0, v.text()->byte_of(most - end.length()), in.budget());
  if (!p.flag(1, false, in)) {
    const size_t space = cut.view().rfind(' ');
    if (space != std::string_view::npos) cut = cut.bytes(0, space, in.budget());
  }
  TextBuilder out(in.budget());
  out.add(cut);
  out.add(end);
  return out.take();
}

Value center(Interpreter& in, const Value& v, Args& args) {
  const Params p("center", args, {"width"});
  return pad(in.budget(), soft_text(in, v), p.integer(0, 80), Text::written(" "), 'c');
}

Value format(Interpreter& in, const Value& v, Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    raise("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
  }
  if (!args.named.empty()) {
    DictBuilder named(in.budget());
    for (auto& [k, value] : args.named) named.set(written(k), value);
    return format_percent(in, soft_text(in, v), named.take());
  }
  return format_percent(in, soft_text(in, v),
                        make_list(std::move(args.positional), in.budget(), true));
}

Value wordcount(Interpreter& in, const Value& v, Args& args) {
  Params("wordcount", args, {});
  const Text t = soft_text(in, v);
  const std::string_view s = t.view();
  int64_t n = 0;
  bool inside = false;
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = decode_valid(s.data() + i);
    const CharClass k = UnicodeTable::instance().char_class(c.value);
    const bool word = c.value == '_' || k == CharClass::letter || k == CharClass::number;
    n += word && !inside ? 1 : 0;
    inside = word;
    i += c.length;
  }
  return n;
}

// <!-- comments --> and <tags> go, runs of white space become one space.
Value striptags(Interpreter& in, const Value& v, Args& args) {
  Params("striptags", args, {});
  const Text t = soft_text(in, v);
  const std::string_view s = t.view();
  TextBuilder bare(in.budget());
  for (size_t i = 0; i < s.size();) {
    const bool comment = s.substr(i, 4) == "<!--";
    const size_t end = s[i] != '<' ? s.npos : s.find(comment ? "-->" : ">", i);
    if (end != s.npos) {
      i = end + (comment ? 3 : 1);
      continue;
    }
    size_t next = s.find('<', i + 1);
    if (next == s.npos) next = s.size();
    bare.add(t, i, next);
    i = next;
  }
  const Text flat = bare.take();
  Args none;
  const Value words = in.call(in.member(flat, written("split")), none);
  return join_texts(in, Text::written(" "), words.list()->items);
}

Value urlencode(Interpreter& in, const Value& v, Args& args) {
  Params("urlencode", args, {});
  const auto quote = [&](const Value& value, bool query) {
    std::string out;
    const Text t = soft_text(in, value);
    for (const char c : t.view()) {
      if (std::isalnum(uint8_t(c)) || c == '_' || c == '.' || c == '-' || c == '~' ||
          (c == '/' && !query)) {
        out += c;
      } else if (c == ' ' && query) {
        out += '+';
      } else {
        out += fmt::format("%{:02X}", unsigned(uint8_t(c)));
      }
    }
    return out;
  };
  if (!v.dict()) return Text(quote(v, false), Origin::outside);
  std::string out;
  for (const auto& [k, value] : v.dict()->items) {
    out += (out.empty() ? "" : "&") + quote(k, true) + "=" + quote(value, true);
  }
  return Text(out, Origin::outside);
}

Value tojson(Interpreter& in, const Value& v, Args& args) { return to_json(in, v, args); }

Value unsupported(Interpreter&, const Value&, Args&) {
  raise("NotImplementedError",
        "the filters pprint, urlize, wordwrap, xmlattr and filesizeformat are not part of nibble's "
        "templates");
}

constexpr NamedFilter kFilters[] = {
    {"tojson", tojson},
    {"trim", trim},
    {"string", string},
    {"join", join},
    {"upper", upper_filter},
    {"lower", lower_filter},
    {"replace", replace_filter},
    {"safe", safe},
    {"indent", indent},
    {"capitalize", capitalize_filter},
    {"title", title},
    {"escape", escape},
    {"e", escape},
    {"forceescape", forceescape},
    {"truncate", truncate},
    {"center", center},
    {"format", format},
    {"wordcount", wordcount},
    {"striptags", striptags},
    {"urlencode", urlencode},
    {"pprint", unsupported},
    {"urlize", unsupported},
    {"wordwrap", unsupported},
    {"xmlattr", unsupported},
    {"filesizeformat", unsupported},
};

}  // namespace
}  // namespace filters_text

FilterBody find_text_filter(std::string_view name) { return find_in(filters_text::kFilters, name); }

}  // namespace nibble::jinja

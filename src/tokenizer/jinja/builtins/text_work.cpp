// SPDX-License-Identifier: MIT
// What filters and methods do to texts; each part keeps its origin.
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/spell.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace {

size_t before(std::string_view s, size_t at) {
  do {
    --at;
  } while (at > 0 && (uint8_t(s[at]) & 0xc0) == 0x80);
  return at;
}

// Each character through a map that may make several of one.
template <class Map>
Text mapped(Budget& budget, const Text& t, Map&& map) {
  TextBuilder out(budget);
  const std::string_view s = t.view();
  size_t run = 0;
  std::string piece;
  const auto& runs = t.runs();
  for (size_t i = 0; i < s.size();) {
    if (i >= runs[run].end) {
      out.add(piece, runs[run].origin);
      piece.clear();
      while (i >= runs[run].end) ++run;
    }
    const CodePoint c = decode_valid(s.data() + i);
    map(piece, c.value, i);
    i += c.length;
  }
  if (!piece.empty()) out.add(piece, runs[run].origin);
  return out.take(t.markup());
}

void add_upper(std::string& out, char32_t c) {
  if (c == 0xdf) {
    out += "SS";
  } else {
    append_utf8(out, char32_t(utf8proc_toupper(utf8proc_int32_t(c))));
  }
}

// A sigma that ends a word is written differently.
bool final_sigma(std::string_view s, size_t at) {
  const auto is_letter = [&](size_t i) {
    const char32_t c = decode_valid(s.data() + i).value;
    return UnicodeTable::instance().char_class(c) == CharClass::letter;
  };
  const size_t next = at + 2;
  return at > 0 && is_letter(before(s, at)) && !(next < s.size() && is_letter(next));
}

void add_lower(std::string& out, std::string_view s, char32_t c, size_t at) {
  if (c == 0x130) {
    out += "i\xcc\x87";
  } else if (c == 0x3a3 && final_sigma(s, at)) {
    append_utf8(out, 0x3c2);
  } else {
    append_utf8(out, char32_t(utf8proc_tolower(utf8proc_int32_t(c))));
  }
}

}  // namespace

Text strip(Budget& budget, const Text& t, const Value* chars, bool left, bool right) {
  const std::string_view s = t.view();
  size_t from = 0, to = s.size();
  if (!chars || chars->is_none()) {
    if (right) to = stripped_end(s);
    if (left) from = stripped_begin(s.substr(0, to));
    return t.bytes(from, to, budget);
  }
  if (!chars->text()) raise("TypeError", "strip arg must be None or str");
  std::vector<char32_t> set;
  const std::string_view c = chars->text()->view();
  for (size_t i = 0; i < c.size();) {
    const CodePoint p = decode_valid(c.data() + i);
    set.push_back(p.value);
    i += p.length;
  }
  budget.charge(int64_t(set.size()));
  const auto in_set = [&](size_t at) {
    budget.charge(int64_t(set.size() / 8));
    return std::find(set.begin(), set.end(), decode_valid(s.data() + at).value) != set.end();
  };
  while (left && from < to && in_set(from)) from += decode_valid(s.data() + from).length;
  while (right && from < to && in_set(before(s, to))) to = before(s, to);
  return t.bytes(from, to, budget);
}

Text replace(Budget& budget, const Text& t, const Text& from, const Text& to, int64_t count) {
  const std::string_view s = t.view(), needle = from.view();
  TextBuilder out(budget);
  size_t done = 0;
  budget.charge_text(s.size());
  for (int64_t n = 0; count < 0 || n < count; ++n) {
    size_t at;
    if (needle.empty()) {  // before each character and at the end
      if (n > t.length()) break;
      at = n == 0 ? 0 : done + decode_valid(s.data() + done).length;
    } else {
      at = s.find(needle, done);
      if (at == s.npos) break;
    }
    out.add(t, done, at);
    out.add(to);
    done = at + needle.size();
  }
  out.add(t, done, s.size());
  return out.take(t.markup());
}

Text upper(Budget& budget, const Text& t) {
  return mapped(budget, t, [](std::string& out, char32_t c, size_t) { add_upper(out, c); });
}

Text lower(Budget& budget, const Text& t) {
  return mapped(budget, t, [s = t.view()](std::string& out, char32_t c, size_t at) {
    add_lower(out, s, c, at);
  });
}

Text capitalize(Budget& budget, const Text& t) {
  return mapped(budget, t, [s = t.view()](std::string& out, char32_t c, size_t at) {
    if (at == 0) {
      append_utf8(out, char32_t(utf8proc_totitle(utf8proc_int32_t(c))));
    } else {
      add_lower(out, s, c, at);
    }
  });
}

Text repeated(Budget& budget, const Text& t, int64_t times) {
  TextBuilder out(budget);
  if (times > 0 && !t.empty()) {
    if (uint64_t(times) > budget.limits().text_bytes) budget.check_text(SIZE_MAX);
    budget.check_text(t.size() * size_t(times));
    for (int64_t i = 0; i < times; ++i) out.add(t);
  }
  return out.take(t.markup());
}

// align: '<' text first, '>' text last, '^' in the middle (as format does), 'c' as str.center.
Text pad(Budget& budget, const Text& t, int64_t width, const Text& fill, char align) {
  const int64_t missing = width - t.length();
  if (missing <= 0) return t;
  int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  if (align == 'c') left = missing / 2 + (missing & width & 1);
  TextBuilder out(budget);
  out.add(repeated(budget, fill, left));
  out.add(t);
  out.add(repeated(budget, fill, missing - left));
  return out.take(t.markup());
}

std::vector<Text> split_lines(Budget& budget, const Text& t, bool keep_ends) {
  std::vector<Text> out;
  const std::string_view s = t.view();
  size_t start = 0;
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = decode_valid(s.data() + i);
    const size_t at = i;
    i += c.length;
    const bool ends = (c.value >= 10 && c.value <= 13) || (c.value >= 0x1c && c.value <= 0x1e) ||
                      c.value == 0x85 || c.value == 0x2028 || c.value == 0x2029;
    if (!ends) continue;
    if (c.value == '\r' && i < s.size() && s[i] == '\n') ++i;
    out.push_back(t.bytes(start, keep_ends ? i : at, budget));
    start = i;
  }
  if (start < s.size()) out.push_back(t.bytes(start, s.size(), budget));
  return out;
}

Text join_texts(Interpreter& in, const Text& separator, const std::vector<Value>& items) {
  TextBuilder out(in.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].text()) {
      raise("TypeError", "sequence item {}: expected str instance, {} found", i,
            type_name(items[i]));
    }
    if (i > 0) out.add(separator);
    out.add(separator.markup() ? html_escaped(in.budget(), *items[i].text()) : *items[i].text());
  }
  return out.take(separator.markup());
}

}  // namespace nibble::jinja

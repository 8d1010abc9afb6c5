// SPDX-License-Identifier: MIT
// "{} {name!r:>8}".format(...)
#include <charconv>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace format {
namespace {

class Format {
 public:
  Format(Interpreter& in, const Text& format, const Args& args)
      : in_(in), format_(format), s_(format.view()), args_(args) {}

  Text all() { return pieces(0, s_.size(), 2); }

 private:
  // The text between two positions with its fields filled in; formats of fields may have fields.
  Text pieces(size_t from, size_t to, int depth) {
    if (depth < 0) raise("ValueError", "Max string recursion exceeded");
    TextBuilder out(in_.budget());
    for (size_t i = from; i < to;) {
      const char c = s_[i];
      if (c != '{' && c != '}') {
        size_t end = i + 1;
        while (end < to && s_[end] != '{' && s_[end] != '}') ++end;
        out.add(format_, i, end);
        i = end;
        continue;
      }
      if (i + 1 < to && s_[i + 1] == c) {
        out.add(format_, i, i + 1);
        i += 2;
        continue;
      }
      if (c == '}') raise("ValueError", "Single '}}' encountered in format string");
      const size_t end = closing(i, to);
      out.add(field(i + 1, end, depth));
      i = end + 1;
    }
    return out.take(format_.markup());
  }

  size_t closing(size_t open, size_t to) const {
    int depth = 0;
    for (size_t i = open; i < to; ++i) {
      if (s_[i] == '{') ++depth;
      if (s_[i] == '}' && --depth == 0) return i;
    }
    if (open + 1 == to) raise("ValueError", "Single '{{' encountered in format string");
    raise("ValueError", "expected '}}' before end of string");
  }

  Text field(size_t from, size_t to, int depth) {
    size_t name_end = from;
    int brackets = 0;
    for (; name_end < to; ++name_end) {
      if (s_[name_end] == '[') ++brackets;
      if (s_[name_end] == ']') --brackets;
      if (brackets <= 0 && (s_[name_end] == '!' || s_[name_end] == ':')) break;
    }
    Value v = value(s_.substr(from, name_end - from));
    size_t spec = name_end;
    if (spec < to && s_[spec] == '!') {
      const char how = spec + 1 < to ? s_[spec + 1] : 0;
      spec += 2;
      if (how == 'r' || how == 'a') {
        v = repr(in_, v);
      } else if (how == 's') {
        v = in_.text_of(v);
      } else {
        raise("ValueError", "Unknown conversion specifier {}", how);
      }
      if (spec < to && s_[spec] != ':') {
        raise("ValueError", "expected ':' after conversion specifier");
      }
    }
    const Text how = spec < to ? pieces(spec + 1, to, depth - 1) : Text();
    if (format_.markup()) return html_escaped(in_.budget(), format_value(in_, v, how));
    return format_value(in_, v, how);
  }

  // A field's name: a number or word, then .attribute and [item].
  Value value(std::string_view name) {
    size_t end = name.find_first_of(".[");
    if (end == name.npos) end = name.size();
    Value v = first(name.substr(0, end));
    while (end < name.size()) {
      if (name[end] == '.') {
        size_t next = name.find_first_of(".[", end + 1);
        if (next == name.npos) next = name.size();
        if (next == end + 1) raise("ValueError", "Empty attribute in format string");
        v = in_.member(v, written(name.substr(end + 1, next - end - 1)));
        end = next;
      } else if (name[end] == '[') {
        const size_t close = name.find(']', end);
        if (close == name.npos) raise("ValueError", "Missing ']' in format string");
        const std::string_view key = name.substr(end + 1, close - end - 1);
        if (key.empty()) raise("ValueError", "Empty attribute in format string");
        int64_t number = 0;
        v = in_.item(v, whole_number(key, number) ? Value(number) : written(key));
        end = close + 1;
      } else {
        raise("ValueError", "Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return v;
  }

  static bool whole_number(std::string_view s, int64_t& out) {
    const auto r = std::from_chars(s.data(), s.data() + s.size(), out);
    return !s.empty() && s[0] != '-' && r.ec == std::errc() && r.ptr == s.data() + s.size();
  }

  Value first(std::string_view name) {
    int64_t i = 0;
    if (name.empty()) {
      if (next_ < 0) {
        raise("ValueError",
              "cannot switch from manual field specification to automatic field numbering");
      }
      i = next_++;
    } else if (whole_number(name, i)) {
      if (next_ > 0) {
        raise("ValueError",
              "cannot switch from automatic field numbering to manual field specification");
      }
      next_ = -1;
    } else {
      for (const auto& [k, v] : args_.named) {
        if (k == name) return v;
      }
      raise("KeyError", "{}", in_quotes(name));
    }
    if (i >= int64_t(args_.positional.size())) {
      raise("IndexError", "tuple index out of range");
    }
    return args_.positional[size_t(i)];
  }

  Interpreter& in_;
  const Text& format_;
  std::string_view s_;
  const Args& args_;
  int64_t next_ = 0;
};

}  // namespace
}  // namespace format

Text format_braces(Interpreter& in, const Text& format, const Args& args) {
  return format::Format(in, format, args).all();
}

}  // namespace nibble::jinja

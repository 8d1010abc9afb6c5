// SPDX-License-Identifier: MIT
// Values to JSON as Python's json.dumps writes it, and from JSON.
#include "tokenizer/jinja/builtins/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/spell.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace json {
namespace {

// A whole number beyond 64 bits with a sign: it can be shown, not reckoned with.
class LargeInteger final : public Object {
 public:
  explicit LargeInteger(uint64_t v) : digits_(std::to_string(v)) {}
  std::string type_name() const override { return "int"; }
  std::string repr(Interpreter&) const override { return digits_; }

 private:
  std::string digits_;
};

class Writer {
 public:
  Writer(Interpreter& in, const Params& p) : in_(in), out_(in.budget()) {
    ascii_ = p.flag(0, false, in);
    if (p.given(1)) {
      indented_ = true;
      indent_ = p[1]->text() ? *p[1]->text()
                             : repeated(in.budget(), Text(" ", Origin::outside), p.integer(1, 0));
      comma_ = Text(",", Origin::outside);
    }
    if (p.given(2)) {
      const std::vector<Value> two = to_vector(in, *p[2]);
      if (two.size() != 2 || !two[0].text() || !two[1].text()) {
        raise("ValueError", "tojson: separators are two strings");
      }
      comma_ = *two[0].text();
      colon_ = *two[1].text();
    }
    sort_ = p.flag(3, false, in);
  }

  Text write(const Value& v) {
    value(v, 0);
    return out_.take();
  }

 private:
  void value(const Value& v, int depth) {
    in_.budget().charge(1);
    if (v.text()) {
      string(*v.text());
    } else if (v.is_none()) {
      out_.outside("null");
    } else if (const bool* b = v.as<bool>()) {
      out_.outside(*b ? "true" : "false");
    } else if (v.number()) {
      out_.outside(number(v));
    } else if (v.list()) {
      list(*v.list(), depth);
    } else if (v.dict()) {
      dict(*v.dict(), depth);
    } else if (const auto* large = dynamic_cast<const LargeInteger*>(v.object())) {
      out_.outside(large->repr(in_));
    } else {
      raise("TypeError", "Object of type {} is not JSON serializable", type_name(v));
    }
  }

  static std::string number(const Value& v) {
    if (const auto i = v.integer()) return std::to_string(*i);
    const double d = *v.as<double>();
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return float_repr(d);
  }

  void line(int depth) {
    if (!indented_) return;
    out_.outside("\n");
    for (int i = 0; i < depth; ++i) out_.add(indent_);
  }

  void list(const List& l, int depth) {
    if (l.items.empty()) return out_.outside("[]");
    out_.outside("[");
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (i > 0) out_.add(comma_);
      line(depth + 1);
      value(l.items[i], depth + 1);
    }
    line(depth);
    out_.outside("]");
  }

  void dict(const Dict& d, int depth) {
    if (d.items.empty()) return out_.outside("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : d.items) items.push_back(&item);
    if (sort_) {
      std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
        return less(a->first, b->first, in_.budget());
      });
    }
    out_.outside("{");
    bool first = true;
    for (const auto* item : items) {
      if (!first) out_.add(comma_);
      first = false;
      line(depth + 1);
      key(item->first);
      out_.add(colon_);
      value(item->second, depth + 1);
    }
    line(depth);
    out_.outside("}");
  }

  void key(const Value& k) {
    if (k.text()) return string(*k.text());
    if (k.is_none()) return out_.outside("\"null\"");
    if (const bool* b = k.as<bool>()) return out_.outside(*b ? "\"true\"" : "\"false\"");
    if (k.number()) return out_.outside("\"" + number(k) + "\"");
    raise("TypeError", "keys must be str, int, float, bool or None, not {}", type_name(k));
  }

  std::string escape(char32_t c) const {
    switch (c) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\f': return "\\f";
      case '\b': return "\\b";
      default: break;
    }
    const auto n = uint32_t(c);
    if (n < 0x20 || (ascii_ && n > 0x7e && n < 0x10000)) return fmt::format("\\u{:04x}", n);
    if (ascii_ && n >= 0x10000) {
      return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((n - 0x10000) >> 10),
                         0xdc00 + ((n - 0x10000) & 0x3ff));
    }
    return {};
  }

  void string(const Text& t) {
    const std::string_view s = t.view();
    out_.outside("\"");
    size_t done = 0;
    for (size_t i = 0; i < s.size();) {
      const CodePoint c = decode_valid(s.data() + i);
      if (c.value < 0x20 || c.value == '"' || c.value == '\\' || (ascii_ && c.value > 0x7e)) {
        if (const std::string e = escape(c.value); !e.empty()) {
          out_.add(t, done, i);
          out_.add(e, t.origin_at(i));
          done = i + c.length;
        }
      }
      i += c.length;
    }
    out_.add(t, done, s.size());
    out_.outside("\"");
  }

  Interpreter& in_;
  TextBuilder out_;
  bool ascii_ = false, indented_ = false, sort_ = false;
  Text indent_;
  Text comma_ = Text(", ", Origin::outside), colon_ = Text(": ", Origin::outside);
};

Value read(const nlohmann::ordered_json& j, Origin origin, Budget& budget, int depth) {
  if (depth > budget.limits().nesting) {
    raise("LimitError", "lists and dicts are nested more than {} deep", budget.limits().nesting);
  }
  using Kind = nlohmann::ordered_json::value_t;
  switch (j.type()) {
    case Kind::boolean: return j.get<bool>();
    case Kind::number_integer: return j.get<int64_t>();
    case Kind::number_unsigned:
      if (j.get<uint64_t>() > uint64_t(INT64_MAX)) {
        return ObjectPtr(std::make_shared<LargeInteger>(j.get<uint64_t>()));
      }
      return j.get<int64_t>();
    case Kind::number_float: return j.get<double>();
    case Kind::string: {
      const auto& s = j.get_ref<const std::string&>();
      budget.check_text(s.size());
      const bool valid = valid_utf8_prefix(s) == s.size();
      return Text(valid ? s : repair_utf8(s), origin);
    }
    case Kind::array: {
      std::vector<Value> items;
      items.reserve(j.size());
      for (const auto& item : j) items.push_back(read(item, origin, budget, depth + 1));
      return make_list(std::move(items), budget);
    }
    case Kind::object: {
      Dict dict;
      for (const auto& [k, v] : j.items()) {
        const bool valid = valid_utf8_prefix(k) == k.size();
        Value value = read(v, origin, budget, depth + 1);
        dict.depth = std::max(dict.depth, (value.list()   ? value.list()->depth
                                           : value.dict() ? value.dict()->depth
                                                          : 0) +
                                              1);
        dict.items.emplace_back(Text(valid ? k : repair_utf8(k), origin), std::move(value));
      }
      budget.charge(int64_t(dict.items.size()));
      return DictPtr(std::make_shared<const Dict>(std::move(dict)));
    }
    default: return None{};
  }
}

}  // namespace
}  // namespace json

Text to_json(Interpreter& in, const Value& v, Args& args) {
  const Params p("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return json::Writer(in, p).write(v);
}

Value from_json(const nlohmann::ordered_json& j, Origin origin, Budget& budget) {
  return json::read(j, origin, budget, 0);
}

}  // namespace nibble::jinja

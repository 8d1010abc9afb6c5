// SPDX-License-Identifier: MIT
// "%s is %d" % (a, b)
#include <cmath>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/builtins/format_spec.h"
#include "tokenizer/jinja/spell.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace {

class Percent {
 public:
  Percent(Interpreter& in, const Text& format, const Value& with)
      : in_(in), format_(format), s_(format.view()), with_(with) {}

  Text all() {
    TextBuilder out(in_.budget());
    while (at_ < s_.size()) {
      const size_t percent = std::min(s_.find('%', at_), s_.size());
      out.add(format_, at_, percent);
      at_ = percent;
      if (at_ >= s_.size()) break;
      ++at_;
      out.add(one());
    }
    const bool tuple = with_.list() && with_.list()->tuple;
    const bool left_over =
        tuple ? used_ < with_.list()->items.size() : used_ == 0 && !with_.dict() && !(with_.list());
    if (left_over && !named_) {
      raise("TypeError", "not all arguments converted during string formatting");
    }
    return out.take(format_.markup());
  }

 private:
  char peek() const {
    if (at_ >= s_.size()) raise("ValueError", "incomplete format");
    return s_[at_];
  }

  Value next() {
    if (with_.list() && with_.list()->tuple) {
      if (used_ >= with_.list()->items.size()) {
        raise("TypeError", "not enough arguments for format string");
      }
      return with_.list()->items[used_++];
    }
    if (used_++ > 0) raise("TypeError", "not enough arguments for format string");
    return with_;
  }

  int64_t count() {
    if (peek() == '*') {
      ++at_;
      const auto n = next().integer();
      if (!n) raise("TypeError", "* wants int");
      return *n;
    }
    int64_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + (s_[at_++] - '0');
      if (n > 1'000'000'000) raise("ValueError", "width too big");
    }
    return n;
  }

  Text one() {
    Value v;
    bool have = false;
    if (peek() == '(') {
      const size_t close = s_.find(')', at_);
      if (close == s_.npos) raise("ValueError", "incomplete format key");
      if (!with_.dict()) raise("TypeError", "format requires a mapping");
      const std::string_view key = s_.substr(at_ + 1, close - at_ - 1);
      const Value* found = with_.dict()->find(written(key), in_.budget());
      if (!found) raise("KeyError", "{}", in_quotes(key));
      v = *found;
      have = named_ = true;
      at_ = close + 1;
    }
    NumberForm form;
    bool left = false, zero = false;
    for (;; ++at_) {
      const char c = peek();
      if (c == '-')
        left = true;
      else if (c == '0')
        zero = true;
      else if (c == '+')
        form.sign = '+';
      else if (c == ' ')
        form.sign = form.sign == '+' ? '+' : ' ';
      else if (c == '#')
        form.alternate = true;
      else
        break;
    }
    int64_t width = count();
    if (width < 0) left = true, width = -width;
    if (peek() == '.') {
      ++at_;
      form.precision = int(std::min<int64_t>(std::max<int64_t>(count(), 0), 1'000'000));
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    form.kind = s_[at_++];
    if (form.kind == '%') return Text::written("%");
    if (!have) v = next();
    return converted(v, form, width, left, zero);
  }

  Text converted(const Value& v, NumberForm form, int64_t width, bool left, bool zero) {
    const Text space = Text::written(" ");
    if (form.kind == 's' || form.kind == 'r' || form.kind == 'a' || form.kind == 'c') {
      Text t = form.kind == 's' ? in_.text_of(v) : form.kind == 'c' ? character(v) : repr(in_, v);
      if (form.precision >= 0 && t.length() > form.precision) {
        t = t.bytes(0, t.byte_of(form.precision), in_.budget());
      }
      if (format_.markup()) t = html_escaped(in_.budget(), t);
      return pad(in_.budget(), t, width, space, left ? '<' : '>');
    }
    bool negative = false;
    std::string body;
    if (std::string_view("diuoxX").find(form.kind) != std::string_view::npos) {
      int64_t n = 0;
      if (const auto i = v.integer()) {
        n = *i;
      } else if (v.as<double>() && form.kind != 'o' && form.kind != 'x' && form.kind != 'X' &&
                 std::fabs(*v.as<double>()) < 9e18) {
        n = int64_t(*v.as<double>());
      } else {
        raise("TypeError", "%{} format: {} is required, not {}", form.kind,
              form.kind == 'o' || form.kind == 'x' || form.kind == 'X' ? "an integer"
                                                                       : "a real number",
              type_name(v));
      }
      body = integer_digits(n, form, negative);
      const int64_t least = form.precision < 0 ? 0 : form.precision;
      if (int64_t(body.size()) < least) body.insert(0, size_t(least) - body.size(), '0');
    } else if (std::string_view("eEfFgG").find(form.kind) != std::string_view::npos) {
      const auto d = v.number();
      if (!d) raise("TypeError", "must be real number, not {}", type_name(v));
      body = real_digits(*d, form, negative);
    } else {
      raise("ValueError", "unsupported format character '{}' (0x{:x}) at index {}", form.kind,
            unsigned(uint8_t(form.kind)), at_ - 1);
    }
    const std::string sign = sign_of(negative, form.sign);
    if (zero && !left) {
      const Text digits = pad(in_.budget(), Text::written(body), width - int64_t(sign.size()),
                              Text::written("0"), '>');
      TextBuilder out(in_.budget());
      out.written(sign);
      out.add(digits);
      return out.take();
    }
    return pad(in_.budget(), Text::written(sign + body), width, space, left ? '<' : '>');
  }

  Text character(const Value& v) {
    if (v.text() && v.text()->length() == 1) return *v.text();
    const auto i = v.integer();
    if (!i || *i < 0 || *i > 0x10ffff || (*i >= 0xd800 && *i < 0xe000)) {
      raise("TypeError", "%c requires int or char");
    }
    std::string c;
    append_utf8(c, char32_t(*i));
    return Text::written(c);
  }

  Interpreter& in_;
  const Text& format_;
  std::string_view s_;
  const Value& with_;
  size_t at_ = 0, used_ = 0;
  bool named_ = false;
};

}  // namespace

Text format_percent(Interpreter& in, const Text& format, const Value& with) {
  return Percent(in, format, with).all();
}

}  // namespace nibble::jinja

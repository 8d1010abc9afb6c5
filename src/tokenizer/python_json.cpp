// SPDX-License-Identifier: MIT
#include "tokenizer/python_json.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

void append_string(std::string& out, std::string_view s) {
  out += '"';
  for (const char c : s) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (uint8_t(c) < 0x20) {
          out += fmt::format("\\u{:04x}", unsigned(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// Python's repr: the shortest digits that read back, fixed for exponents -4 .. 15.
void append_float(std::string& out, double x) {
  if (std::isnan(x)) {
    out += "NaN";
    return;
  }
  if (std::signbit(x)) out += '-';
  x = std::fabs(x);
  if (std::isinf(x)) {
    out += "Infinity";
    return;
  }
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::scientific);
  const std::string_view text(buffer, size_t(end.ptr - buffer));  // d.ddde+XX
  const size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  if (digits.size() > 1) digits.erase(1, 1);  // the point
  int exponent = 0;
  const std::string_view power = text.substr(e + 1);
  std::from_chars(power.data() + (power[0] == '+'), power.data() + power.size(), exponent);
  const int n = int(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += '.' + digits.substr(1);
    out += fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += "0." + std::string(size_t(-exponent - 1), '0') + digits;
  } else if (n <= exponent + 1) {
    out += digits + std::string(size_t(exponent + 1 - n), '0') + ".0";
  } else {
    out += digits.substr(0, size_t(exponent + 1)) + '.' + digits.substr(size_t(exponent + 1));
  }
}

void append(std::string& out, const Json& v) {
  bool first = true;
  const auto separate = [&] {
    if (!first) out += ", ";
    first = false;
  };
  switch (v.type()) {
    case Json::value_t::object:
      out += '{';
      for (const auto& [key, value] : v.items()) {
        separate();
        append_string(out, key);
        out += ": ";
        append(out, value);
      }
      out += '}';
      break;
    case Json::value_t::array:
      out += '[';
      for (const Json& value : v) {
        separate();
        append(out, value);
      }
      out += ']';
      break;
    case Json::value_t::string: append_string(out, v.get_ref<const std::string&>()); break;
    case Json::value_t::boolean: out += v.get<bool>() ? "true" : "false"; break;
    case Json::value_t::number_integer: out += std::to_string(v.get<int64_t>()); break;
    case Json::value_t::number_unsigned: out += std::to_string(v.get<uint64_t>()); break;
    case Json::value_t::number_float: append_float(out, v.get<double>()); break;
    default: out += "null"; break;
  }
}

}  // namespace

std::string python_json(const nlohmann::ordered_json& value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace nibble

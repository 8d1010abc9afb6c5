// SPDX-License-Identifier: MIT
// Option values: text to value and value to TOML.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "apps/options/options.h"

namespace nibble {
namespace {

template <class T>
std::string parse_integer(const std::string& text, T& out) {
  const char* const end = text.data() + text.size();
  T v{};
  const auto [stop, error] = std::from_chars(text.data(), end, v);
  if (error == std::errc::result_out_of_range && stop == end) {
    return fmt::format("does not fit into {} bits", sizeof(T) * 8);
  }
  if (error != std::errc() || stop != end) {
    const bool negative = std::is_unsigned_v<T> && text.starts_with("-");
    return negative ? "is negative" : "is not a whole number";
  }
  out = v;
  return "";
}

template <class T>
std::string parse_floating(const std::string& text, T& out) {
  const char* const end = text.data() + text.size();
  T v{};
  const auto [stop, error] = std::from_chars(text.data(), end, v);
  if (stop != end || (error != std::errc() && error != std::errc::result_out_of_range)) {
    return "is not a number";
  }
  if (error != std::errc() || !std::isfinite(v)) return "is not a number this option can hold";
  out = v;
  return "";
}

std::string toml_quoted(const std::string& v) {
  std::string s = "\"";
  for (const char c : v) {
    switch (c) {
      case '"': s += "\\\""; break;
      case '\\': s += "\\\\"; break;
      case '\n': s += "\\n"; break;
      case '\t': s += "\\t"; break;
      case '\r': s += "\\r"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          s += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
        } else {
          s += c;
        }
    }
  }
  return s + "\"";
}

struct SizeUnit {
  std::string_view name;
  double bytes;
};
// As the hub's tools and llama.cpp's have them.
constexpr SizeUnit kSizeUnits[] = {
    {"GB", 1e9},     {"MB", 1e6},     {"KB", 1e3},     {"TB", 1e12}, {"GiB", 0x1p30},
    {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"TiB", 0x1p40}, {"G", 1e9},   {"M", 1e6},
    {"K", 1e3},      {"T", 1e12},     {"B", 1},        {"", 1}};

// TOML tells 1.0 from 1.
std::string floating(std::string s) {
  return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

std::string parse_value(const std::string& text, bool& out) {
  if (same_word(text, "true") || text == "1" || same_word(text, "yes")) {
    out = true;
  } else if (same_word(text, "false") || text == "0" || same_word(text, "no")) {
    out = false;
  } else {
    return "is neither true nor false";
  }
  return "";
}
std::string parse_value(const std::string& text, int32_t& out) { return parse_integer(text, out); }
std::string parse_value(const std::string& text, int64_t& out) { return parse_integer(text, out); }
std::string parse_value(const std::string& text, uint64_t& out) { return parse_integer(text, out); }
std::string parse_value(const std::string& text, float& out) { return parse_floating(text, out); }
std::string parse_value(const std::string& text, double& out) { return parse_floating(text, out); }
std::string parse_value(const std::string& text, std::string& out) {
  out = text;
  return "";
}
std::string parse_value(const std::string& text, std::filesystem::path& out) {
  if (text.empty()) return "is empty, expected a path";
  out = text;
  return "";
}
std::string parse_value(const std::string& text, ByteSize& out) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const size_t name = std::min(text.find_first_not_of(' ', digits), text.size());
  const std::string_view unit = std::string_view(text).substr(name);
  const auto it =
      std::ranges::find_if(kSizeUnits, [&](const SizeUnit& u) { return same_word(u.name, unit); });
  double number = 0;
  if (it == std::end(kSizeUnits) || !parse_floating(text.substr(0, digits), number).empty()) {
    return "is not a size like 5GB, 500MB or 2GiB";
  }
  const double bytes = number * it->bytes;
  if (!(bytes >= 1 && bytes < 0x1p62)) return "is not a size that files can have";
  out.bytes = uint64_t(bytes);
  return "";
}
std::string parse_value(const std::string& text, std::vector<int32_t>& out) {
  std::vector<int32_t> ids;
  size_t i = 0;
  while (i <= text.size()) {
    const size_t comma = std::min(text.find(',', i), text.size());
    std::string piece = text.substr(i, comma - i);
    piece.erase(0, std::min(piece.find_first_not_of(' '), piece.size()));
    piece.erase(piece.find_last_not_of(' ') + 1);
    int32_t id = 0;
    const std::string wrong = parse_integer(piece, id);
    if (!wrong.empty()) return fmt::format("holds '{}', which {}", piece, wrong);
    ids.push_back(id);
    i = comma + 1;
  }
  out = std::move(ids);
  return "";
}

std::string toml_value(bool v) { return v ? "true" : "false"; }
std::string toml_value(int32_t v) { return fmt::format("{}", v); }
std::string toml_value(int64_t v) { return fmt::format("{}", v); }
// TOML integers are signed: a seed beyond them is kept exact as a string.
std::string toml_value(uint64_t v) {
  return v > uint64_t(INT64_MAX) ? fmt::format("\"{}\"", v) : fmt::format("{}", v);
}
std::string toml_value(float v) { return floating(fmt::format("{}", v)); }
std::string toml_value(double v) { return floating(fmt::format("{}", v)); }
std::string toml_value(const std::string& v) { return toml_quoted(v); }
// An empty path means that none was given.
std::string toml_value(const std::filesystem::path& v) {
  return v.empty() ? "" : toml_quoted(v.string());
}
std::string toml_value(ByteSize v) {
  for (const SizeUnit& u : kSizeUnits) {
    const auto unit = uint64_t(u.bytes);
    if (v.bytes % unit == 0) return toml_quoted(fmt::format("{}{}", v.bytes / unit, u.name));
  }
  return {};
}
std::string toml_value(const std::vector<int32_t>& v) {
  return fmt::format("[{}]", fmt::join(v, ", "));
}
std::string toml_value(const std::vector<std::string>& v) {
  std::vector<std::string> q;
  for (const std::string& s : v) q.push_back(toml_quoted(s));
  return fmt::format("[{}]", fmt::join(q, ", "));
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "runlog/html_page.h"

#include <fmt/format.h>

#include <span>

#include "core/sha256.h"
#include "runlog/run_report_style.h"
#include "runlog/svg_plot.h"

namespace nibble {
namespace {

std::string base64(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t v = 0;
    for (size_t k = 0; k < 3; ++k) v = v << 8 | (i + k < bytes.size() ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) {
      out += i + k <= bytes.size() ? kDigits[v >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

}  // namespace

std::string html_text(std::string_view s) {
  std::string out;
  while (true) {
    const size_t end = s.find('\n');
    out += xml_escaped(s.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += '\n';
    s.remove_prefix(end + 1);
  }
}

const char* html_language(std::string_view s) {
  for (size_t i = 0; i + 2 < s.size(); ++i) {
    const auto at = [&](size_t k) { return static_cast<unsigned char>(s[i + k]); };
    const unsigned c = (at(0) & 0x0fu) << 12 | (at(1) & 0x3fu) << 6 | (at(2) & 0x3fu);
    if ((at(0) & 0xf0) == 0xe0 && c >= 0x4e00 && c <= 0x9fff) return " lang=\"zh-Hant\"";
  }
  return "";
}

std::string html_head(std::string_view title, std::string_view style, std::string_view script) {
  std::string scripts = "'none'";
  if (!script.empty()) {
    Sha256 h;
    h.update(script);
    scripts = fmt::format("'sha256-{}'", base64(h.finish()));
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src {}; base-uri 'none'; "
      "form-action 'none'\"/>\n"
      "<title>{}</title>\n<style>\n{}{}</style>\n</head>\n",
      scripts, html_text(title), style, kReportStyle);
}

}  // namespace nibble

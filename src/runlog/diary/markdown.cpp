// SPDX-License-Identifier: MIT
#include "runlog/diary/markdown.h"

#include <algorithm>
#include <string_view>

#include "core/text/visible.h"

namespace nibble {
namespace {

std::string blanks_for_line_ends(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return text;
}

}  // namespace

std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : visible_line(blanks_for_line_ends(text))) {
    if (std::string_view("\\`*_[]<>|#&~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// More backticks around it than in it.
std::string markdown_code(const std::string& any) {
  const std::string text = visible_line(blanks_for_line_ends(any));
  size_t longest = 0, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return longest == 0 ? fence + text + fence : fence + " " + text + " " + fence;
}

}  // namespace nibble

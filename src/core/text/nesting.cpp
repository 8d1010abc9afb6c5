// SPDX-License-Identifier: MIT
#include "core/text/nesting.h"

namespace nibble {
namespace {

// Brackets opened and not closed.
class Depth {
 public:
  // False: this one is too many.
  bool take(char c) {
    if (c == '[' || c == '{') return ++open_ <= kMaxNesting;
    if ((c == ']' || c == '}') && open_ > 0) --open_;
    return true;
  }

 private:
  size_t open_ = 0;
};

// The first byte after a string of one line that begins at `at` with its quote.
size_t after_string(std::string_view text, size_t at) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote) {
    if (text[at] == '\\' && quote == '"') ++at;
    ++at;
  }
  return at + 1;
}

// The same for TOML, where a string may be of several lines.
size_t after_toml_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string_view three = quote == '"' ? R"(""")" : "'''";
  if (text.substr(at, 3) != three) {
    const size_t end = after_string(text, at), line = text.find('\n', at);
    return line < end ? line : end;  // without its closing quote it is an error, not text for ever
  }
  for (at += 3; at < text.size() && text.substr(at, 3) != three; ++at) {
    if (text[at] == '\\' && quote == '"') ++at;
  }
  return at + 3;
}

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

}  // namespace

std::optional<size_t> too_deep_in_json(std::string_view text) {
  Depth depth;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      i = after_string(text, i);
      continue;
    }
    if (!depth.take(text[i])) return i;
    ++i;
  }
  return std::nullopt;
}

std::optional<size_t> too_deep_in_toml(std::string_view text) {
  Depth depth;
  size_t dots = 0;  // of the key at hand; a number has one at most
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      i = after_toml_string(text, i);
      continue;
    }
    if (c == '#') {
      i = text.find('\n', i);
      if (i == std::string_view::npos) break;
      continue;
    }
    if (c == '.') {
      if (++dots >= kMaxNesting) return i;
    } else if (!is_bare(c) && c != ' ' && c != '\t') {
      dots = 0;
    }
    if (!depth.take(c)) return i;
    ++i;
  }
  return std::nullopt;
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "data/phrases.h"

#include <vector>

#include "core/error.h"

namespace nibble {
namespace {

// Where the choice or value that opens at `at` closes.
size_t closing(std::string_view text, size_t at) {
  int depth = 0;
  for (size_t i = at; i < text.size(); ++i) {
    depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (depth == 0) return i;
  }
  throw_internal("grammar: a '[' without its ']' in '{}'", text);
}

std::vector<std::string_view> alternatives(std::string_view inside) {
  std::vector<std::string_view> out;
  int depth = 0;
  size_t from = 0;
  for (size_t i = 0; i < inside.size(); ++i) {
    depth += inside[i] == '[' ? 1 : inside[i] == ']' ? -1 : 0;
    if (inside[i] == '|' && depth == 0) {
      out.push_back(inside.substr(from, i - from));
      from = i + 1;
    }
  }
  out.push_back(inside.substr(from));
  return out;
}

void expand_into(std::string& out, std::string_view text, const Row& row, Draw& draw) {
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '[') {
      const size_t end = closing(text, i);
      const auto list = alternatives(text.substr(i + 1, end - i - 1));
      expand_into(out, draw.pick(list), row, draw);
      i = end + 1;
    } else if (text[i] == '{') {
      const size_t end = text.find('}', i);
      if (end == text.npos) throw_internal("grammar: a '{{' without its '}}' in '{}'", text);
      const auto value = row.find(text.substr(i + 1, end - i - 1));
      if (value == row.end()) throw_internal("grammar: no value for '{}'", text.substr(i, end));
      out += value->second;
      i = end + 1;
    } else {
      out += text[i++];
    }
  }
}

// English "a" before a vowel becomes "an": values do not know what stands before them.
std::string with_articles(std::string text) {
  for (size_t i = 0; i + 2 < text.size(); ++i) {
    const bool article = (text[i] == 'a' || text[i] == 'A') && text[i + 1] == ' ' &&
                         (i == 0 || text[i - 1] == ' ' || text[i - 1] == '"');
    if (article && std::string_view("aeiou").find(text[i + 2]) != std::string_view::npos) {
      text.insert(i + 1, "n");
    }
  }
  return text;
}

}  // namespace

std::string expand(std::string_view text, const Row& row, Draw& draw) {
  std::string out;
  expand_into(out, text, row, draw);
  return with_articles(std::move(out));
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Lines "prompt<TAB>target".
#include <algorithm>
#include <array>

#include "core/error.h"
#include "data/lines.h"

namespace nibble {
namespace {

bool is_one_of(std::string_view text, std::span<const std::string_view> names) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return std::find(names.begin(), names.end(), lower) != names.end();
}

}  // namespace

bool is_tsv_header(std::string_view raw) {
  const std::string_view line = trim_text(raw);
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos) return false;
  const std::string_view prompt = trim_text(line.substr(0, tab));
  const std::string_view target = trim_text(line.substr(tab + 1));
  constexpr std::array<std::string_view, 9> kPrompts = {
      "prompt", "input", "question", "instruction", "query", "user", "source", "human", "q"};
  constexpr std::array<std::string_view, 11> kTargets = {
      "target",    "output", "answer", "response", "completion", "reply",
      "assistant", "label",  "gpt",    "a",        "expected"};
  return is_one_of(prompt, kPrompts) && is_one_of(target, kTargets);
}

namespace {

[[noreturn]] void no_tab(std::string_view raw, std::string_view line) {
  const size_t tab = raw.find('\t');
  if (tab != std::string_view::npos) {
    const bool before = raw.data() + tab < line.data();
    throw_format("the {} is empty (nothing {} the tab): '{}'", before ? "prompt" : "target",
                 before ? "before" : "after", excerpt(raw));
  }
  const char* hint = "";
  if (line.front() == '{') {
    hint = "; it looks like JSON: name the file .jsonl or choose that format";
  } else if (line.find("\\t") != std::string_view::npos) {
    hint = "; it has a backslash and a t where the tab should be";
  }
  throw_format("no tab between prompt and target in '{}'{}", excerpt(line), hint);
}

}  // namespace

DataRecord parse_tsv_line(std::string_view raw) {
  const std::string_view line = trim_text(raw);
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos) no_tab(raw, line);
  // The line is trimmed, so neither side is empty.
  const std::string_view prompt = trim_text(line.substr(0, tab));
  const std::string_view target = trim_text(line.substr(tab + 1));
  DataRecord record;
  record.messages = {{Role::user, std::string(prompt)}, {Role::assistant, std::string(target)}};
  return record;
}

}  // namespace nibble

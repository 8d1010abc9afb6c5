// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/command.h"
#include "apps/completions/completions.h"

namespace nibble {
namespace {

CompletionWord word_of(const Field& f) {
  CompletionWord w;
  w.names = {f.info.flag};
  w.names.insert(w.names.end(), f.info.aliases.begin(), f.info.aliases.end());
  w.value_name = value_name(f);
  w.help = f.info.help;
  w.repeated = f.kind == FieldKind::repeated;
  w.rest = f.info.rest;
  for (const std::string& c : f.info.choices) {
    if (!c.ends_with(":N")) w.words.push_back(c);  // a pattern, not a word
  }
  // Arguments without choices name files; so do options that may be repeated, by their value.
  const bool names_files =
      f.is_path || f.positional() || f.info.value.find("FILE") != std::string::npos;
  w.value = f.kind == FieldKind::boolean ? CompletionWord::none
            : !w.words.empty()           ? CompletionWord::choices
            : names_files                ? CompletionWord::files
                                         : CompletionWord::other;
  return w;
}

}  // namespace

std::vector<CompletedCommand> completed_commands() {
  std::vector<CompletedCommand> all;
  for (const Command& c : commands()) {
    CompletedCommand done{c.name, c.summary, {}, {}};
    with_options(c, [&](const Fields& fields) {
      for (const Field& f : fields.all()) {
        (f.positional() ? done.arguments : done.options).push_back(word_of(f));
      }
    });
    all.push_back(std::move(done));
  }
  return all;
}

std::vector<CompletionWord> completed_before_command() {
  std::vector<CompletionWord> words;
  with_options_before_command([&](const Fields& fields) {
    for (const Field& f : fields.all()) words.push_back(word_of(f));
  });
  return words;
}

std::string join_words(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string single_quoted(const std::string& text) {
  std::string s = "'";
  for (const char c : text) {
    if (c == '\'') {
      s += "'\\''";
    } else {
      s += c;
    }
  }
  return s + "'";
}

}  // namespace nibble

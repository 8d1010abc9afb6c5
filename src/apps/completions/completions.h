// SPDX-License-Identifier: MIT
// Completions for shells, made of the option declarations, so that they are never out of date.
#pragma once
#include <string>
#include <vector>

namespace nibble {

// One option or argument as a shell sees it.
struct CompletionWord {
  enum Value { none, files, choices, other };  // none: a boolean
  std::vector<std::string> names;              // "--gpu-limit-gb", "-l"; of an argument: "IN"
  std::string value_name, help;
  Value value = none;
  std::vector<std::string> words;  // the choices
  bool repeated = false;
  bool rest = false;  // a program and its arguments
};
struct CompletedCommand {
  std::string name, summary;
  std::vector<CompletionWord> options, arguments;
};

std::vector<CompletedCommand> completed_commands();
std::vector<CompletionWord> completed_before_command();
std::string join_words(const std::vector<std::string>& words);  // with spaces
std::string single_quoted(const std::string& text);             // for a POSIX shell: 'it'\''s'

// The scripts, each complete in itself.
std::string bash_completions();
std::string zsh_completions();
std::string fish_completions();

}  // namespace nibble

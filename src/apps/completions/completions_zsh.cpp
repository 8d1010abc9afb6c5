// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "apps/completions/completions.h"

namespace nibble {
namespace {

// For _arguments: brackets and colons have a meaning there.
std::string escaped(const std::string& text) {
  std::string s;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') s += '\\';
    s += c;
  }
  return s;
}

std::string action_of(const CompletionWord& w) {
  switch (w.value) {
    case CompletionWord::files: return "_files";
    case CompletionWord::choices: return fmt::format("({})", escaped(join_words(w.words)));
    case CompletionWord::none:
    case CompletionWord::other: break;
  }
  return "";
}

std::string option_specs(const CompletionWord& w) {
  std::string s;
  for (const std::string& name : w.names) {
    // One excludes its other names; `=` allows --option=value beside --option value.
    std::string spec = w.repeated ? "*" : fmt::format("({})", join_words(w.names));
    spec += name;
    if (w.value != CompletionWord::none && name.starts_with("--")) spec += "=";
    spec += fmt::format("[{}]", escaped(w.help));
    if (w.value != CompletionWord::none) {
      spec += fmt::format(":{}:{}", escaped(w.value_name), action_of(w));
    }
    s += fmt::format("        {} \\\n", single_quoted(spec));
  }
  return s;
}

std::string argument_spec(const CompletionWord& w) {
  const std::string name = escaped(w.names.front());
  const std::string spec = w.rest       ? fmt::format("*:::{}:_normal", name)
                           : w.repeated ? fmt::format("*:{}:{}", name, action_of(w))
                                        : fmt::format(":{}:{}", name, action_of(w));
  return fmt::format("        {} \\\n", single_quoted(spec));
}

}  // namespace

std::string zsh_completions() {
  const std::vector<CompletedCommand> all = completed_commands();
  std::string s =
      "#compdef nibble\n# zsh completion for nibble, made by: nibble completions zsh\n\n"
      "_nibble_commands() {\n  local -a commands=(\n";
  for (const CompletedCommand& c : all) {
    s += fmt::format("    {}\n", single_quoted(c.name + ":" + escaped(c.summary)));
  }
  s += "    'help:Explain a command'\n  )\n  _describe -t commands command commands\n}\n\n"
       "_nibble() {\n  local curcontext=$curcontext state line\n  typeset -A opt_args\n"
       "  _arguments -C \\\n";
  for (const CompletionWord& w : completed_before_command()) s += option_specs(w);
  s += "        '1:command:_nibble_commands' \\\n        '*::argument:->command' && return\n"
       "  [[ $state == command ]] || return 1\n"
       "  curcontext=\"${curcontext%:*:*}:nibble-$words[1]:\"\n  case $words[1] in\n"
       "    help) _arguments '1:command:_nibble_commands' ;;\n";
  for (const CompletedCommand& c : all) {
    s += fmt::format("    {})\n      _arguments \\\n", c.name);
    for (const CompletionWord& o : c.options) s += option_specs(o);
    for (const CompletionWord& a : c.arguments) s += argument_spec(a);
    s += "        && return\n      ;;\n";
  }
  // Autoloaded from $fpath the file is the function's body; sourced, it has to be announced.
  return s +
         "  esac\n}\n\nif [[ $funcstack[1] == _nibble ]]; then\n  _nibble \"$@\"\nelse\n"
         "  compdef _nibble nibble\nfi\n";
}

}  // namespace nibble

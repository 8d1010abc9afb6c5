// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "apps/completions/completions.h"

namespace nibble {
namespace {

constexpr const char* kFishHead = R"(# fish completion for nibble, made by: nibble completions fish

# Whether the command line's command is $argv[1]; without an argument: whether it has none yet.
function __nibble_command
    set -l words (commandline -opc)
    for word in $words[2..-1]
        string match -q -- '-*' $word; and continue
        test (count $argv) -eq 1; and test $word = $argv[1]
        return
    end
    test (count $argv) -eq 0
end
# Whether the command is $argv[1] and no argument of it follows. (A value of an option counts as one:
# then words are not offered that may still be typed.)
function __nibble_first_argument
    __nibble_command $argv[1]; or return
    set -l words (commandline -opc)
    set -l found 0
    for word in $words[2..-1]
        string match -q -- '-*' $word; or set found (math $found + 1)
    end
    test $found -eq 1
end

complete -c nibble -f
)";

// For fish's single quotes, in which backslashes and quotes are escaped.
std::string fish_quoted(const std::string& text) {
  std::string s = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') s += '\\';
    s += c;
  }
  return s + "'";
}

std::string option_line(const std::string& condition, const CompletionWord& w) {
  std::string s = fmt::format("complete -c nibble -n {}", fish_quoted(condition));
  for (const std::string& name : w.names) {
    const bool is_long = name.starts_with("--");
    s += fmt::format(" {} {}", is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1));
  }
  switch (w.value) {
    case CompletionWord::none: break;
    case CompletionWord::files: s += " -r -F"; break;
    case CompletionWord::choices: s += " -x -a " + fish_quoted(join_words(w.words)); break;
    case CompletionWord::other: s += " -x"; break;
  }
  return s + " -d " + fish_quoted(w.help) + "\n";
}

}  // namespace

std::string fish_completions() {
  std::string s = kFishHead;
  for (const CompletionWord& w : completed_before_command()) {
    s += option_line("__nibble_command", w);
  }
  const std::vector<CompletedCommand> all = completed_commands();
  std::string names;
  for (const CompletedCommand& c : all) {
    names += (names.empty() ? "" : " ") + c.name;
    s += fmt::format("complete -c nibble -n __nibble_command -a {} -d {}\n", c.name,
                     fish_quoted(c.summary));
  }
  s += "complete -c nibble -n __nibble_command -a help -d 'Explain a command'\n";
  s += fmt::format("complete -c nibble -n '__nibble_first_argument help' -a {}\n",
                   fish_quoted(names));
  for (const CompletedCommand& c : all) {
    const std::string here = "__nibble_command " + c.name;
    for (const CompletionWord& a : c.arguments) {
      if (a.rest) {
        s += fmt::format(
            "complete -c nibble -n '{}' -a '(__fish_complete_subcommand --fcs-skip=2)'\n", here);
      } else if (a.value == CompletionWord::choices) {
        s += fmt::format("complete -c nibble -n '__nibble_first_argument {}' -a {}\n", c.name,
                         fish_quoted(join_words(a.words)));
      } else {
        s += fmt::format("complete -c nibble -n '{}' -F\n", here);
      }
    }
    for (const CompletionWord& o : c.options) s += option_line(here, o);
  }
  return s;
}

}  // namespace nibble

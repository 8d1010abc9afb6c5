// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "apps/completions/completions.h"

namespace nibble {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kBashHead =
    R"bash(# bash completion for nibble, made by: nibble completions bash
# Needs nothing but bash itself.

)bash";

// Looks up the command's words in the functions above it.
constexpr const char* kTail = R"bash(
_nibble_offer() {  # WORDS that begin like the word under the cursor
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}
_nibble_offer_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
_nibble_offer_kind() {  # "files", "none" or words
  case $1 in
    files) _nibble_offer_files ;;
    none) ;;
    *) _nibble_offer "$1" ;;
  esac
}

_nibble() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local command= option= flags= valued= files= choices= rest= i n=0 word
  local -a arguments=()
  COMPREPLY=()
  # bash takes --option=value for three words.
  if [[ $current == = ]]; then
    current= option=$before
  elif [[ $before == = ]]; then
    option=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      command=${COMP_WORDS[i]}
      break
    fi
  done
  if [[ -z $command ]]; then
    _nibble_offer "$(_nibble_commands) help $(_nibble_before)"
    return
  fi
  if [[ $command == help ]]; then
    _nibble_offer "$(_nibble_commands)"
    return
  fi
  _nibble_words "$command" || return
  for ((++i; i < COMP_CWORD; ++i)); do  # arguments before the cursor
    word=${COMP_WORDS[i]}
    if [[ " $valued " == *" $word "* ]]; then
      [[ ${COMP_WORDS[i + 1]} == = ]] && ((++i))
      ((++i))
    elif [[ $word != -* && $word != = ]]; then
      ((++n))
      [[ -n $rest ]] && break
    fi
  done
  if [[ -n $rest && $n -gt 0 ]]; then  # the arguments of another program
    _nibble_offer_files
    return
  fi
  [[ -z $option && " $valued " == *" $before "* ]] && option=$before
  if [[ -n $option ]]; then
    if [[ " $files " == *" $option "* ]]; then
      _nibble_offer_files
    elif [[ " $valued " == *" $option "* ]]; then
      _nibble_choices "$command" "$option"
      _nibble_offer "$choices"
    else
      _nibble_offer 'true false'
    fi
  elif [[ $current == -* ]]; then
    _nibble_offer "$flags $valued"
  elif [[ -n $rest ]]; then
    mapfile -t COMPREPLY < <(compgen -c -- "$current")
  elif ((n < ${#arguments[@]})); then
    _nibble_offer_kind "${arguments[n]#more }"
  elif [[ ${#arguments[@]} -gt 0 && ${arguments[-1]} == more* ]]; then
    _nibble_offer_kind "${arguments[-1]#more }"
  else
    _nibble_offer "$flags $valued"
  fi
}
complete -F _nibble nibble
)bash";

void append(Words& to, const Words& from) { to.insert(to.end(), from.begin(), from.end()); }

std::string kind_of(const CompletionWord& w) {
  switch (w.value) {
    case CompletionWord::files: return "files";
    case CompletionWord::choices: return join_words(w.words);
    case CompletionWord::none:
    case CompletionWord::other: break;
  }
  return "none";
}

std::string words_of(const CompletedCommand& c) {
  Words flags, valued, files, arguments;
  bool rest = false;
  for (const CompletionWord& o : c.options) {
    append(o.value == CompletionWord::none ? flags : valued, o.names);
    if (o.value == CompletionWord::files) append(files, o.names);
  }
  for (const CompletionWord& a : c.arguments) {
    rest = rest || a.rest;
    if (!a.rest) arguments.push_back(single_quoted((a.repeated ? "more " : "") + kind_of(a)));
  }
  return fmt::format(
      "    {})\n      flags='{}'\n      valued='{}'\n      files='{}'\n"
      "      arguments=({})\n      rest={}\n      ;;\n",
      c.name, join_words(flags), join_words(valued), join_words(files), join_words(arguments),
      rest ? "yes" : "");
}

}  // namespace

std::string bash_completions() {
  const std::vector<CompletedCommand> all = completed_commands();
  Words names, before;
  for (const CompletedCommand& c : all) names.push_back(c.name);
  for (const CompletionWord& w : completed_before_command()) append(before, w.names);
  std::string s = kBashHead;
  s += fmt::format("_nibble_commands() {{ echo '{}'; }}\n", join_words(names));
  s += fmt::format("_nibble_before() {{ echo '{}'; }}\n", join_words(before));
  s += "_nibble_words() {  # COMMAND: what it takes\n  case $1 in\n";
  for (const CompletedCommand& c : all) s += words_of(c);
  s += "    *) return 1 ;;\n  esac\n}\n";
  s += "_nibble_choices() {  # COMMAND OPTION: the values of those that have a few\n";
  s += "  case \"$1 $2\" in\n";
  for (const CompletedCommand& c : all) {
    for (const CompletionWord& o : c.options) {
      if (o.value != CompletionWord::choices) continue;
      std::string pattern;
      for (const std::string& n : o.names) {
        pattern += fmt::format("{}'{} {}'", pattern.empty() ? "" : " | ", c.name, n);
      }
      s += fmt::format("    {}) choices='{}' ;;\n", pattern, join_words(o.words));
    }
  }
  return s + "  esac\n}\n" + kTail;
}

}  // namespace nibble

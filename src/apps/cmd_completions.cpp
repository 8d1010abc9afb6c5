// SPDX-License-Identifier: MIT
// nibble completions: the script that makes a shell complete nibble's command lines.
#include <ostream>

#include "apps/command.h"
#include "apps/completions/completions.h"

namespace nibble {
namespace {

enum class Shell { bash, zsh, fish };

struct CompletionsOptions {
  Shell shell = Shell::bash;

  void visit_fields(Fields& f) {
    f.add_choice(shell, {.flag = "SHELL", .help = "bash, zsh or fish", .required = true},
                 {{"bash", Shell::bash}, {"zsh", Shell::zsh}, {"fish", Shell::fish}});
  }
};

ExitCode run_completions(const CompletionsOptions& o, Io& io) {
  switch (o.shell) {
    case Shell::bash: io.out << bash_completions(); break;
    case Shell::zsh: io.out << zsh_completions(); break;
    case Shell::fish: io.out << fish_completions(); break;
  }
  return ExitCode::ok;
}

}  // namespace

Command completions_command() {
  return make_command<CompletionsOptions>(
      "completions", "Print the completions of bash, zsh or fish for this binary",
      "An installed nibble has them in place. Without installing, for the shell that is open:\n\n"
      "bash  source <(nibble completions bash)\n"
      "zsh   source <(nibble completions zsh)   (after compinit)\n"
      "fish  nibble completions fish | source",
      run_completions);
}

}  // namespace nibble

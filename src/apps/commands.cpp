// SPDX-License-Identifier: MIT
// The list of commands, in the order of --help.
#include "apps/command.h"

namespace nibble {

#define NIBBLE_COMMANDS(X) \
  X(train)                 \
  X(chat)                  \
  X(generate)              \
  X(serve)                 \
  X(convert)               \
  X(init)                  \
  X(inspect)               \
  X(tokenize)              \
  X(render)                \
  X(bench)                 \
  X(check)                 \
  X(trace)                 \
  X(pretrain)              \
  X(plan)                  \
  X(profile)               \
  X(smoke)                 \
  X(guard)                 \
  X(data)                  \
  X(runs)                  \
  X(doctor)                \
  X(man)                   \
  X(completions)

#define X(name) Command name##_command();
NIBBLE_COMMANDS(X)
#undef X

const std::vector<Command>& commands() {
#define X(name) name##_command(),
  static const std::vector<Command> list = {NIBBLE_COMMANDS(X)};
#undef X
  return list;
}

}  // namespace nibble

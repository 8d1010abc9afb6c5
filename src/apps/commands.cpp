// SPDX-License-Identifier: MIT
// The list of commands, in the order of --help.
#include "apps/command.h"

namespace nibble {

#define NIBBLE_COMMANDS(X) \
  X(train)                 \
  X(chat)                  \
  X(generate)              \
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

const LaterCommand* find_later_command(std::string_view name) {
  static constexpr LaterCommand kLater[] = {
      {"serve", "an HTTP API and a web page"},
  };
  for (const LaterCommand& c : kLater) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

}  // namespace nibble

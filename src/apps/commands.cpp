// SPDX-License-Identifier: MIT
// The list of commands, in the order of --help.
#include "apps/command.h"

namespace nibble {

#define NIBBLE_COMMANDS(X) \
  X(chat)                  \
  X(generate)              \
  X(convert)               \
  X(init)                  \
  X(inspect)               \
  X(tokenize)              \
  X(bench)                 \
  X(check)                 \
  X(trace)

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
      {"train", "fine-tuning on text"},
      {"profile", "one training step, phase by phase"},
      {"smoke", "training on random data, checkpoint and resume"},
      {"pretrain", "training from random initialisation"},
      {"plan", "what a run will need, before anything is loaded"},
      {"serve", "an HTTP API and a web page"},
      {"data", "making training sets"},
      {"guard", "running a command under a memory limit"},
      {"runs", "the experiment log"},
  };
  for (const LaterCommand& c : kLater) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

}  // namespace nibble

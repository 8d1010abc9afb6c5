// SPDX-License-Identifier: MIT
// A chain of stages: a --run-config with [[stage]] tables. Each stage is a run of its own; its
// output is the next one's input. <runs-dir>/<chain>/chain.json says how far it is: what is
// finished, by the hashes of all it read and wrote, is not run again.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "apps/command.h"
#include "apps/options/run_config.h"

namespace nibble {

struct ChainRequest {
  const RunConfig& config;
  std::string command;                // given on the command line
  std::span<const std::string> args;  // its options, without those every command has
  // The message for an option that a command does not have.
  std::function<std::string(const std::string& flag, const std::string& command, Fields&)> explain;
  bool print_config = false;  // only print what each stage would do
};

// The exit code of the first stage that fails, and ok when none does or one was interrupted. Throws
// UsageError before anything runs when a stage is not right, and whatever a stage throws, with its
// name.
ExitCode run_chain(const ChainRequest& request, Io& io);

}  // namespace nibble

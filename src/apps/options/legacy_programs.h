// SPDX-License-Identifier: MIT
// The programs of nibble's predecessor: which command does their work, with which settings where
// the line says nothing, and which flags they took. `nibble run-training2.fsx --prompt hi` is such
// a line with its launcher exchanged, and goes to that command.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/options/options.h"
#include "apps/options/run_config.h"

namespace nibble {

struct LegacyProgram {
  std::string_view name;     // without .fsx or .py; "main program" has none that can be typed
  std::string_view command;  // of nibble
  std::string_view words;    // that stand before its flags: "whoami" of data
  // What it did by itself, where nibble's command has another default: keys of a run-config.
  std::vector<std::pair<std::string, std::string>> defaults;
  std::string_view flags;           // all it took, apart by spaces
  std::string_view last_word = {};  // the flag its last word without one stands for
  bool gpu_guard = false;           // run-script-with-guard
};

std::span<const LegacyProgram> legacy_programs();
// By a name as it was typed: with a directory before it and .fsx, .py or .dll behind it, in any
// letter case. Null when there is none.
const LegacyProgram* find_legacy_program(std::string_view typed);
// The words of its line as its command takes them.
std::vector<std::string> words_of(const LegacyProgram& program, std::span<const std::string> args);
// Sets what the line left open.
void apply_defaults(const LegacyProgram& program, Fields& fields, const ExplainUnknown& explain);

// Whether a predecessor's program that is now `command` took a flag the command does not have: then
// it is no longer needed there.
std::optional<UnneededValue> find_unneeded(std::string_view flag, std::string_view command);

// Values that were flags' and have another form now: the line as it is read, each change said.
std::vector<std::string> with_values_of_today(std::span<const std::string> args,
                                              std::string_view command);

}  // namespace nibble

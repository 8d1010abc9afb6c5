// SPDX-License-Identifier: MIT
// The options of `nibble runs`.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/options/options.h"
#include "runlog/run_folder.h"
#include "runlog/run_prune.h"

namespace nibble {

struct RunsOptions {
  std::string action;
  std::vector<std::string> runs;
  std::filesystem::path runs_dir = RunFolderOptions().runs_dir;
  bool json = false;
  std::string state, command, name;
  std::optional<int64_t> last;
  bool once = false;
  std::optional<double> interval;
  bool markdown = false, force = false;
  std::filesystem::path out, append;
  bool good_for = false;
  std::string prompt;
  int64_t max_tokens = 64;
  std::optional<std::string> device;
  PruneRules prune;
  bool yes = false;

  void visit_fields(Fields& f);
  // Throws UsageError for options that say nothing to this action.
  void check() const;
};

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Where a command writes a model: nothing existing is replaced without --force.
#pragma once
#include <filesystem>

#include "model/init.h"

namespace nibble {

enum class Overwrite { refuse, allow };

struct OutputPlace {
  std::filesystem::path directory;  // that will hold the weights and their companions
  bool fresh = false;               // it did not exist or was empty
};

// Throws UsageError when `out` exists (a directory: holds anything) and may not be replaced.
// Creates nothing yet.
OutputPlace check_output(const std::filesystem::path& out, Container container,
                         Overwrite overwrite);

// Files of a model that are not weights: config.json, the tokenizer's and generation_config.json.
// Copies those that exist in `from` and are absent in `to`; a file that is there already is
// replaced with Overwrite::allow and otherwise kept, which a warning says when it differs.
void copy_companions(const std::filesystem::path& from, const std::filesystem::path& to,
                     Overwrite overwrite);
void copy_companion(const std::filesystem::path& file, const std::filesystem::path& to,
                    Overwrite overwrite);

// Weight files of an earlier model in `directory` that the one just written does not have.
void remove_stale_weights(const std::filesystem::path& directory);

}  // namespace nibble

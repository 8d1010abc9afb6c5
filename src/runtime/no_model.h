// SPDX-License-Identifier: MIT
// Files that are named where a model is expected and are none: called by their name.
#pragma once
#include <filesystem>
#include <string>

namespace nibble {

// "a TSV file, which is data and no model: --train-data takes it"; empty where the file may be a
// model. By what the file holds, and by its name where that does not tell.
std::string why_no_model(const std::filesystem::path& file);

}  // namespace nibble

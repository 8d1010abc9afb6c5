// SPDX-License-Identifier: MIT
// Weights by the names that models go by, for commands that need no model around them.
#pragma once
#include <filesystem>

namespace nibble {

// The one .dat or .gguf of a directory, the snapshot in a folder of Hugging Face's cache, a model
// that comes with nibble; any other name is itself. Throws FormatError where nothing is.
// (model_paths.cpp)
std::filesystem::path weights_named(const std::filesystem::path& named);

}  // namespace nibble

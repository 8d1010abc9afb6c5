// SPDX-License-Identifier: MIT
// The texts that lie beside a model's weights, wherever they are: files of a directory, or made
// from the metadata of a GGUF, which has them all in itself.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "tokenizer/tokenizer.h"

namespace nibble {

// Where the companions of a file (config.json, tokenizer.json) are: the directory it lies in, or
// the GGUF that it is itself.
std::filesystem::path place_of(const std::filesystem::path& file);

// The text of "tokenizer_config.json" and the like in such a place; nullopt where it has none.
std::optional<std::string> companion_text(const std::filesystem::path& place,
                                          const std::string& name);

// tokenizer.json as text, and read: a file of that form, or a GGUF.
std::string tokenizer_text(const std::filesystem::path& file);
Tokenizer load_tokenizer(const std::filesystem::path& file);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// A Hugging Face directory as the GGUF that the usual tools make of it.
#pragma once
#include <filesystem>
#include <string>

#include "support/gguf_file.h"

namespace nibble::test {

// Its config.json as metadata, its tensors as F32, with the rows of q and k of a `llama` side by
// side. rope scaling is left to the caller, and so is the tokenizer.
GgufFile gguf_of_directory(const std::filesystem::path& directory);

// A tokenizer.json as metadata: tokens, their types, merges, and the splitting rule's name.
void add_tokenizer(GgufFile& file, const std::string& tokenizer_json, const std::string& pre);

// The elements of a row of 32 as a block of Q8_0.
std::string q8_0_block(const float* x);

}  // namespace nibble::test

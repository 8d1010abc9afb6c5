// SPDX-License-Identifier: MIT
// What lies beside the weights of a Hugging Face model, made from the metadata of a GGUF: the texts
// of tokenizer.json, tokenizer_config.json and generation_config.json.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "formats/gguf/metadata.h"

namespace nibble {

// The kinds of tokens; unknown (2) and byte (6) do not occur in byte-level vocabularies.
constexpr int64_t kNormalToken = 1, kControlToken = 3, kUserToken = 4, kUnusedToken = 5;

// Byte-level BPE with a known splitting rule; anything else is a FormatError that names it.
std::string gguf_tokenizer_json(const GgufMetadata& metadata);
// Beginning and end tokens and the chat template, as far as the file has them.
std::string gguf_tokenizer_config_json(const GgufMetadata& metadata);
// All end tokens, and how to sample where the file says so.
std::string gguf_generation_config_json(const GgufMetadata& metadata);

}  // namespace nibble

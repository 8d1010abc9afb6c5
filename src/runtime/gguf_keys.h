// SPDX-License-Identifier: MIT
// The metadata of a GGUF that is to be written, from the files that lie beside a model elsewhere:
// the way back from runtime/gguf_texts.h.
#pragma once
#include <filesystem>
#include <string>

#include "formats/gguf/metadata.h"
#include "model/config.h"
#include "runtime/model_origin.h"

namespace nibble {

// `config`: the config.json, or a GGUF, whose keys on its maker, tokenizer and sampling are taken
// over; `tokenizer`: likewise, may be empty. FormatError for a tokenizer that a GGUF cannot say.
GgufMetadata gguf_keys(const std::filesystem::path& config, const std::filesystem::path& tokenizer,
                       const Config& stored, const ModelOrigin& origin);

// How Ollama is told of such a file: `ollama create NAME -f Modelfile`.
std::string ollama_modelfile(const std::string& gguf_name, const GgufMetadata& keys);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Everything of a model that is written but its weights: inside of a GGUF, beside any other form.
#pragma once
#include <filesystem>
#include <string>

#include "formats/gguf/metadata.h"
#include "model/config.h"
#include "runtime/model_origin.h"
#include "runtime/output_files.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

class StagedOutput;

struct OutputTexts {
  std::filesystem::path config;     // config.json, or a GGUF
  std::filesystem::path tokenizer;  // tokenizer.json, or a GGUF; may be empty
  ModelOrigin origin;
};

// Of a GGUF; empty for the other containers. `stored`: the config as it is in the file.
GgufMetadata output_metadata(Container container, const Config& stored, const OutputTexts& texts);
// Beside a GGUF: Ollama's Modelfile. Into a directory: what Hugging Face's library wants and the
// input lacks, and the model's card; after copy_companions().
void complete_output(StagedOutput& output, Container container, const OutputTexts& texts,
                     const GgufMetadata& metadata, Overwrite overwrite);

// ChatML as Jinja, for a model without a template whose tokenizer has its tokens: what nibble
// itself uses then. Empty where it does not.
std::string fallback_template(const Tokenizer& tokenizer);

}  // namespace nibble

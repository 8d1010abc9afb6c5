// SPDX-License-Identifier: MIT
// The files that make up a model, found from the few names a person gives.
#pragma once
#include <filesystem>

namespace nibble {

struct ModelOptions {
  std::filesystem::path model, weight, model_dir, config, tokenizer;

  bool named() const { return !model.empty() || !weight.empty() || !model_dir.empty(); }
};

struct ModelPaths {
  std::filesystem::path weights;    // for open_tensor_source(): a file or a directory
  std::filesystem::path config;     // config.json
  std::filesystem::path tokenizer;  // tokenizer.json; empty when optional and not found
};

enum class TokenizerNeed { required, optional };

// The files that make up the model. Throws UsageError when the options do not name one, and
// FormatError that lists what was looked for when a file is missing.
ModelPaths resolve_model(const ModelOptions& options, TokenizerNeed need);
// tokenizer.json alone: --tokenizer, or beside the model.
std::filesystem::path resolve_tokenizer(const ModelOptions& options);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// The files that make up a model, found from the few names a person gives.
#pragma once
#include <filesystem>
#include <optional>

namespace nibble {

struct ModelOptions {
  std::filesystem::path model, weight, model_dir, config, tokenizer;

  bool named() const { return !model.empty() || !weight.empty() || !model_dir.empty(); }
};

struct ModelPaths {
  std::filesystem::path weights;  // for open_model_source(): a file or a directory
  // config.json and tokenizer.json (empty when optional and not found), or the GGUF they are made
  // from: for load_config() and load_tokenizer().
  std::filesystem::path config, tokenizer;
};

enum class TokenizerNeed { required, optional };

// The files that make up the model. Throws UsageError when the options do not name one, and
// FormatError that lists what was looked for when a file is missing.
ModelPaths resolve_model(const ModelOptions& options, TokenizerNeed need);
// The files of a checkpoint (the file, or a directory of them) as a model: `weights` is the
// checkpoint, what lies beside a model is that of the one its run began with. Nothing for any other
// name.
std::optional<ModelPaths> checkpoint_paths(const std::filesystem::path& named);
// The tokenizer alone: --tokenizer, or beside (or inside) the model.
std::filesystem::path resolve_tokenizer(const ModelOptions& options);

}  // namespace nibble

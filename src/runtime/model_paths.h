// SPDX-License-Identifier: MIT
// Naming a model on the command line, the same way in every command.
#pragma once
#include <filesystem>

#include "apps/options/options.h"

namespace nibble {

struct ModelOptions {
  std::filesystem::path model, weight, model_dir, config, tokenizer;

  bool named() const { return !model.empty() || !weight.empty() || !model_dir.empty(); }
  void visit_fields(Fields& f) {
    f.section("Model");
    f.add(model,
          {.flag = "--model",
           .help = "The model: a Hugging Face directory, a .safetensors or a .dat file; mini is "
                   "the one that comes with nibble",
           .value = "DIR|FILE"});
    f.add(weight, {.flag = "--weight",
                   .help = "The same as --model; with --model-dir, a file in that directory",
                   .value = "FILE",
                   .aliases = {"--input-dat"}});
    f.add(model_dir, {.flag = "--model-dir",
                      .help = "The same as --model; with --weight, where config.json and "
                              "tokenizer.json lie",
                      .value = "DIR"});
    f.add(config, {.flag = "--config",
                   .help = "config.json, when it does not lie beside the weights",
                   .value = "FILE"});
    f.add(tokenizer, {.flag = "--tokenizer",
                      .help = "tokenizer.json, when it does not lie beside the weights",
                      .value = "FILE"});
  }
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

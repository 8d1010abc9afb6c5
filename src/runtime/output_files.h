// SPDX-License-Identifier: MIT
// Where a command writes a model: nothing existing is replaced without --force.
#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "formats/container.h"
#include "formats/tensor_source.h"
#include "runtime/model_paths.h"
#include "runtime/quantization_json.h"

namespace nibble {

enum class Overwrite { refuse, allow };

struct OutputPlace {
  std::filesystem::path directory;  // that will hold the weights and their companions
  bool fresh = false;               // it did not exist or was empty
};

// Throws UsageError when `out` exists (a directory: holds anything) and may not be replaced.
// Creates nothing yet.
OutputPlace check_output(const std::filesystem::path& out, Container container,
                         Overwrite overwrite);

// Throws UsageError when writing `out` would replace a file the weights are read from; a directory
// is replaced file by file, so they may not lie in it.
void refuse_replacing_weights(const TensorSource& source, const std::filesystem::path& out,
                              Container container);

// Throws UsageError when `output` is a file of the model (weights, config.json, the tokenizer's
// files; also through a link) or one of `others`. Paths of both may be empty.
void refuse_replacing_input(const std::filesystem::path& output, const ModelPaths& model,
                            const std::vector<std::filesystem::path>& others = {});

// Throws UsageError when two of these outputs, each with its flag, are one file. Paths may be
// empty.
void refuse_same_output(const std::vector<std::pair<std::string, std::filesystem::path>>& outputs);

// Throws FormatError when no file can be made in `directory`, which need not exist yet: to be asked
// before hours of work, not after them. Leaves nothing behind.
void check_writable(const std::filesystem::path& directory);

// The one rule for every file a command writes: never one of `inputs` or of the model's, never an
// existing file unless it may be replaced. Devices and pipes may. Throws UsageError; an empty path
// is none.
void check_output_file(const std::filesystem::path& output, Overwrite overwrite,
                       const ModelPaths& model = {},
                       const std::vector<std::filesystem::path>& inputs = {});
// How such a file is then written (core/file.h).
inline Existing existing_file(Overwrite overwrite) {
  return overwrite == Overwrite::allow ? Existing::replace : Existing::keep;
}

constexpr const char* kShardIndex = "model.safetensors.index.json";
constexpr const char* kModelOptConfig = "hf_quant_config.json";
constexpr const char* kModelCard = "README.md";  // in a directory
// config.json, the files of a tokenizer, the card.
bool is_companion_name(const std::string& name);

class StagedOutput;  // runtime/staged_output.h

// config.json (that of a GGUF, too) beside the weights; `untied`: it says that the head is not the
// embedding, whatever `config` says. Where it is the input's own it is kept, and a warning says
// what to change.
// `quantization`: what it says of packed weights; null: what it says already, where the form of
// the weights stays.
void write_model_config(const std::filesystem::path& config, StagedOutput& output, bool untied,
                        Overwrite overwrite, const OutputQuantization* quantization = nullptr);

// Throws UsageError when `directory` already holds the config.json of a model with other parameters
// than those of `config`: kept, it would be read with the new weights. With Overwrite::allow it
// will be replaced.
void refuse_other_model(const std::filesystem::path& config, const std::filesystem::path& directory,
                        Overwrite overwrite);

// A file that is copied into an output must lie in the model's directory: a link out of it would
// bring any file of this machine along. Links into the `blobs` of a Hugging Face cache, which is
// how such a cache holds its files, are its own. FormatError names the link.
void refuse_companions_from_elsewhere(const std::filesystem::path& directory);
// Copies what `from`, a directory or a GGUF (runtime/model_texts.h), has of the tokenizer's files
// and generation_config.json, `except` some.
void copy_companions(const std::filesystem::path& from, StagedOutput& output, Overwrite overwrite,
                     const std::set<std::string>& except = {});

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Where a model that is written comes from, as far as whoever writes it knows: for the keys of a
// GGUF and the card of a directory.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "formats/tensor_source.h"

namespace nibble {

struct OriginFile {
  std::string role, name, sha256;  // "train-data", "pairs.tsv", its hash or ""
};

struct ModelOrigin {
  std::string name;                // of the model
  std::string parent;              // of the one it was made from
  bool trained = false;            // or converted
  std::vector<std::string> facts;  // "300 steps, last loss 0.0123"
  std::vector<OriginFile> files;   // that made it, the parent's weights among them
  std::vector<std::string> scores;
};

// What a model is called: by its own metadata, its config.json, or the place it lies in, whose
// files are called alike in every directory; a .dat has a name of its own.
std::string model_name(const std::filesystem::path& weights, const std::filesystem::path& config);
// By the name of the output: the file's or the directory's.
std::string name_of_output(const std::filesystem::path& out);

// README.md of a directory, in the form model hubs read.
std::string model_card(const ModelOrigin& origin);

}  // namespace nibble

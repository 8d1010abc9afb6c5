// SPDX-License-Identifier: MIT
// A toy model as a Hugging Face directory on disk: config.json, model.safetensors, tokenizer.json.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/file.h"
#include "support/temporary_directory.h"
#include "support/toy_model.h"
#include "tokenizer/mini_tokenizer.h"

namespace nibble::test {

// The toy with a vocabulary that holds the mini tokenizer (270 tokens) and a few spare rows.
inline Config toy_chat_config() {
  Config c = toy_config();
  c.V = 288;
  return c;
}

// The config.json of a model, as text and as a document that tests can change.
std::string config_text(const Config& c);
nlohmann::ordered_json config_json(const Config& c);

void write_toy_directory(const std::filesystem::path& dir, const Config& c = toy_chat_config());

}  // namespace nibble::test

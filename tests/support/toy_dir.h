// SPDX-License-Identifier: MIT
// A toy model as a Hugging Face directory on disk: config.json, model.safetensors, tokenizer.json.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/file.h"
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

// A fresh directory that is removed with the object.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& name) {
    static int counter = 0;
    path_ = std::filesystem::path(testing::TempDir()) /
            (name + "-" + std::to_string(::getpid()) + "-" + std::to_string(++counter));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void write_toy_directory(const std::filesystem::path& dir, const Config& c = toy_chat_config());

}  // namespace nibble::test

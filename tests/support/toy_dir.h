// SPDX-License-Identifier: MIT
// A toy model as a Hugging Face directory on disk: config.json, model.safetensors, tokenizer.json.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
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

inline nlohmann::ordered_json config_json(const Config& c) {
  nlohmann::ordered_json j = {
      {"model_type", "qwen3"},         {"hidden_size", c.C},
      {"num_hidden_layers", c.L},      {"num_attention_heads", c.Hq},
      {"num_key_value_heads", c.Hkv},  {"head_dim", c.D},
      {"intermediate_size", c.F},      {"vocab_size", c.V},
      {"rms_norm_eps", c.rms_eps},     {"rope_theta", c.rope_theta},
      {"tie_word_embeddings", c.tied}, {"max_position_embeddings", c.max_positions},
      {"hidden_act", "silu"}};
  if (!c.eos_ids.empty()) j["eos_token_id"] = c.eos_ids;
  return j;
}

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

inline void write_toy_directory(const std::filesystem::path& dir,
                                const Config& c = toy_chat_config()) {
  std::filesystem::create_directories(dir);
  write_text_file_atomic(dir / "config.json", config_json(c).dump(1));
  write_text_file_atomic(dir / "tokenizer.json", mini_tokenizer().dump());
  write_toy_weights(c, dir / "model.safetensors");
}

}  // namespace nibble::test

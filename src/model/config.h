// SPDX-License-Identifier: MIT
// A model's dimensions and constants, and what its family has, from config.json: the one place
// that asks for a family's name. Anything the wiring does not do (other biases, sliding windows,
// other kinds of rope, experts) is refused here, never ignored.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/rope.h"

namespace nibble {

// The letters used in shape comments everywhere. N is the number of tokens in a batch.
struct Config {
  int64_t C = 0;    // model width (hidden_size)
  int64_t L = 0;    // layers
  int64_t Hq = 0;   // query heads
  int64_t Hkv = 0;  // key/value heads
  int64_t D = 0;    // head width
  int64_t F = 0;    // feed-forward width
  int64_t V = 0;    // vocabulary rows of the embedding
  double rms_eps = 1e-6;
  RopeSpec rope;
  bool qk_norm = true;    // queries and keys are normalised head by head
  bool qkv_bias = false;  // q, k and v have biases; never together with norms
  bool tied = false;      // the head is the embedding
  int64_t max_positions = 0;
  double initializer_range = 0.02;
  std::vector<int32_t> eos_ids;  // may be empty

  int64_t qkv_rows() const { return (Hq + 2 * Hkv) * D; }
  int64_t parameter_count() const;  // a tied head counts once
};

// What a config may say at most: far above every model, and low enough that no size overflows.
struct ConfigLimits {
  static constexpr int64_t kWidth = 1 << 20, kLayers = 4096, kHeads = 4096, kHeadWidth = 1024,
                           kFeedForward = 1 << 24, kVocabulary = 1 << 24, kPositions = 1 << 30;
};

// `where` names the text in error messages. Accepts both generations of the file: rope_theta at
// the top level, or transformers 5's rope_parameters.
Config parse_config(std::string_view json, const std::string& where);
// A config.json, or a GGUF, whose metadata make one.
Config load_config(const std::filesystem::path& file);
std::string config_text(const std::filesystem::path& file);

}  // namespace nibble

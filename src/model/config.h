// SPDX-License-Identifier: MIT
// A Qwen3 model's dimensions and constants, from config.json. Anything the wiring does not do
// (biases, sliding windows, rope scaling, experts) is refused here, never ignored.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

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
  double rope_theta = 1e6;
  bool tied = false;  // the head is the embedding
  int64_t max_positions = 0;
  double initializer_range = 0.02;
  std::vector<int32_t> eos_ids;  // may be empty

  int64_t qkv_rows() const { return (Hq + 2 * Hkv) * D; }
  int64_t parameter_count() const;  // a tied head counts once
};

// `where` names the text in error messages. Accepts both generations of the file: rope_theta at
// the top level, or transformers 5's rope_parameters.
Config parse_config(std::string_view json, const std::string& where);
Config load_config(const std::filesystem::path& file);

}  // namespace nibble

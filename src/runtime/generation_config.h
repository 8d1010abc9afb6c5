// SPDX-License-Identifier: MIT
// What a model's maker says about sampling: generation_config.json, or the keys of a GGUF.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generate/sampler.h"
#include "model/config.h"

namespace nibble {

struct GenerationConfig {
  SampleOptions sample;  // neutral where the file says nothing
  std::string source;    // the file; empty where there is none or it says nothing of sampling
  std::vector<int32_t> eos_ids;  // end tokens, in its order

  std::string describe() const;  // "temperature 0.7, top-p 0.8"; empty when all is neutral
};

// As in transformers: without "do_sample": true the reply is greedy, whatever the temperature; the
// repetition penalty counts in either case. FormatError for values out of range; fields about
// beams, lengths and the like are none of these and are left alone.
GenerationConfig parse_generation_config(std::string_view json, const std::string& where);

// Of the model whose config.json is at `config` (a directory's file, or a GGUF).
GenerationConfig load_generation_config(const std::filesystem::path& config);
// Adds its end tokens to those of config.json.
void add_end_tokens(Config& config, const GenerationConfig& generation);

// A flag that was given wins over the file; with a temperature of 0 or less, the file's sampling is
// put aside as a whole, so that plain greedy is one flag away.
struct SampleFlags {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  uint64_t seed = SampleOptions().seed;

  SampleOptions over(const GenerationConfig& defaults) const;
  bool operator==(const SampleFlags&) const = default;
};

// Says in the log what of the model's own wishes counts, where it has any.
void log_sampling(const SampleFlags& flags, const GenerationConfig& generation);

}  // namespace nibble

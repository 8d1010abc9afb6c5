// SPDX-License-Identifier: MIT
#include "support/toy_dir.h"

#include <nlohmann/json.hpp>

namespace nibble::test {

nlohmann::ordered_json config_json(const Config& c) {
  nlohmann::ordered_json j = {{"model_type", c.qk_norm    ? "qwen3"
                                             : c.qkv_bias ? "qwen2"
                                                          : "llama"},
                              {"hidden_size", c.C},
                              {"num_hidden_layers", c.L},
                              {"num_attention_heads", c.Hq},
                              {"num_key_value_heads", c.Hkv},
                              {"head_dim", c.D},
                              {"intermediate_size", c.F},
                              {"vocab_size", c.V},
                              {"rms_norm_eps", c.rms_eps},
                              {"rope_theta", c.rope.theta},
                              {"tie_word_embeddings", c.tied},
                              {"max_position_embeddings", c.max_positions},
                              {"hidden_act", "silu"}};
  if (!c.eos_ids.empty()) j["eos_token_id"] = c.eos_ids;
  return j;
}

std::string config_text(const Config& c) { return config_json(c).dump(1); }

void write_toy_directory(const std::filesystem::path& dir, const Config& c) {
  std::filesystem::create_directories(dir);
  replace_file(dir / "config.json", config_text(c));
  replace_file(dir / "tokenizer.json", mini_tokenizer_text());
  write_toy_weights(c, dir / "model.safetensors");
}

}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// config.json: both generations are read, everything the wiring does not do is refused by name.
#include "model/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/params.h"
#include "support/golden.h"
#include "support/shared_data.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

using nlohmann::ordered_json;

ordered_json good() { return config_json(toy_config()); }
Config parse(const ordered_json& j) { return parse_config(j.dump(), "config.json"); }

void refused(const ordered_json& j, const std::string& says) {
  try {
    parse(j);
    ADD_FAILURE() << j.dump() << " was accepted";
  } catch (const FormatError& e) {
    EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
  }
}

TEST(Config, ReadsEveryField) {
  ordered_json j = good();
  j["eos_token_id"] = {7, 9};
  j["initializer_range"] = 0.5;
  const Config c = parse(j), t = toy_config();
  EXPECT_EQ(std::tie(c.C, c.L, c.Hq, c.Hkv, c.D, c.F, c.V),
            std::tie(t.C, t.L, t.Hq, t.Hkv, t.D, t.F, t.V));
  EXPECT_EQ(c.rms_eps, 1e-6);
  EXPECT_EQ(c.rope.theta, 1e4);
  EXPECT_EQ(c.max_positions, 512);
  EXPECT_EQ(c.initializer_range, 0.5);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.eos_ids, (std::vector<int32_t>{7, 9}));
  j["eos_token_id"] = 5;
  EXPECT_EQ(parse(j).eos_ids, (std::vector<int32_t>{5}));
}

TEST(Config, RopeThetaOfBothGenerations) {
  ordered_json j = good();
  j["rope_scaling"] = nullptr;
  EXPECT_EQ(parse(j).rope.theta, 1e4);
  j.erase("rope_theta");
  refused(j, "rope_theta");
  j["rope_parameters"] = {{"rope_theta", 5e6}, {"rope_type", "default"}};
  EXPECT_EQ(parse(j).rope.theta, 5e6);
  EXPECT_EQ(load_config(golden_dir() / "qwen3_untied" / "config.json").rope.theta, 5e6);
  j = good();
  j["rope_theta"] = 0.5;
  refused(j, "rope_theta");
}

TEST(Config, KindsOfRope) {
  ordered_json j = good();
  j["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  Config c = parse(j);
  EXPECT_EQ(c.rope.kind, RopeKind::linear);
  EXPECT_EQ(c.rope.factor, 2);
  EXPECT_EQ(c.rope.theta, 1e4);
  j["rope_scaling"].erase("factor");
  refused(j, "factor");
  j["rope_scaling"]["factor"] = 0.5;
  refused(j, "factor");
  // The older generation's yarn, as long-context models have it.
  j["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  c = parse(j);
  EXPECT_EQ(c.rope.kind, RopeKind::yarn);
  EXPECT_EQ(c.rope.original_positions, double(c.max_positions));
  EXPECT_EQ(std::tie(c.rope.beta_fast, c.rope.beta_slow), std::make_tuple(32.0, 1.0));
  EXPECT_DOUBLE_EQ(c.rope.attention_factor, 0.1 * std::log(4.0) + 1);
  j["rope_scaling"]["original_max_position_embeddings"] = 128;
  j["rope_scaling"]["attention_factor"] = 1.5;
  c = parse(j);
  EXPECT_EQ(c.rope.original_positions, 128);
  EXPECT_EQ(c.rope.attention_factor, 1.5);
  j["rope_scaling"]["beta_fast"] = 1;
  refused(j, "beta_fast");
  j["rope_scaling"] = {{"rope_type", "llama3"},
                       {"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 8192}};
  c = parse(j);
  EXPECT_EQ(c.rope.kind, RopeKind::llama3);
  EXPECT_EQ(c.rope.original_positions, 8192);
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    ordered_json without = j;
    without["rope_scaling"].erase(key);
    refused(without, key);
    without["rope_scaling"][key] = -1;
    refused(without, key);
  }
  j["rope_scaling"]["high_freq_factor"] = 1;
  refused(j, "high_freq_factor");
  for (const char* kind : {"dynamic", "longrope", "su", "mrope"}) {
    j["rope_scaling"] = {{"type", kind}, {"factor", 2}};
    refused(j, kind);
  }
  j["rope_scaling"] = {{"type", "default"}, {"partial_rotary_factor", 0.5}};
  refused(j, "partial_rotary_factor");
  j["rope_scaling"] = "yarn";
  refused(j, "rope_scaling");
}

TEST(Config, Families) {
  ordered_json j = good();
  const auto has = [&](const char* type) {
    j["model_type"] = type;
    const Config c = parse(j);
    return std::pair(c.qk_norm, c.qkv_bias);
  };
  EXPECT_EQ(has("qwen3"), std::pair(true, false));
  EXPECT_EQ(has("qwen2"), std::pair(false, true));
  EXPECT_EQ(has("llama"), std::pair(false, false));
  j.erase("head_dim");
  EXPECT_EQ(parse(j).D, 16);  // hidden_size / heads
  j.erase("rope_theta");
  EXPECT_EQ(parse(j).rope.theta, 1e4);
  j["model_type"] = "qwen2";
  refused(j, "rope_theta");
  for (const char* type : {"mistral", "gemma2", "qwen3_moe", "gpt2"}) {
    j = good();
    j["model_type"] = type;
    refused(j, type);
    refused(j, "qwen3, qwen2, llama");
  }
}

TEST(Config, WindowsAreRefusedWhereALayerHasOne) {
  ordered_json j = good();
  j["use_sliding_window"] = true;
  refused(j, "use_sliding_window");
  j["max_window_layers"] = 2;  // of three layers
  refused(j, "use_sliding_window");
  j["max_window_layers"] = 3;
  EXPECT_NO_THROW(parse(j));
  j["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  refused(j, "sliding_attention");
  j["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  EXPECT_NO_THROW(parse(j));
  j["layer_types"] = "full_attention";
  refused(j, "layer_types");
}

TEST(Config, DefaultsOfOlderFiles) {
  ordered_json j = good();
  j.erase("head_dim");
  j.erase("num_key_value_heads");
  j.erase("tie_word_embeddings");
  j.erase("model_type");
  const Config c = parse(j);
  EXPECT_TRUE(c.qk_norm);
  EXPECT_EQ(c.D, 128);
  EXPECT_EQ(c.Hkv, 4);
  EXPECT_FALSE(c.tied);
}

TEST(Config, MissingWrongAndUnsupportedFieldsAreNamed) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "vocab_size", "rms_norm_eps"}) {
    ordered_json j = good();
    j.erase(key);
    refused(j, key);
    j[key] = "many";
    refused(j, key);
    j[key] = -1;
    refused(j, key);
  }
  const auto with = [](const char* key, ordered_json value) {
    ordered_json j = good();
    j[key] = std::move(value);
    return j;
  };
  refused(with("hidden_size", 1e3), "hidden_size");  // a float
  refused(with("hidden_size", 18446744073709551615ull), "hidden_size");
  refused(with("rms_norm_eps", 0), "rms_norm_eps");
  refused(with("head_dim", 15), "head_dim");
  refused(with("num_key_value_heads", 3), "heads");
  ordered_json many = with("num_attention_heads", 128);
  many["num_key_value_heads"] = 1;
  refused(many, "64");
  refused(with("tie_word_embeddings", "yes"), "tie_word_embeddings");
  refused(with("eos_token_id", 160), "eos_token_id");
  refused(with("eos_token_id", {1, "x"}), "eos_token_id");
  refused(with("model_type", 3), "model_type");
  refused(with("hidden_act", "gelu"), "hidden_act");
  refused(with("attention_bias", true), "attention_bias");
  refused(with("mlp_bias", true), "mlp_bias");
  refused(with("partial_rotary_factor", 0.25), "partial_rotary_factor");
  for (const char* type : {"llama", "qwen2"}) {
    ordered_json j = with("model_type", type);
    j["attention_bias"] = std::string_view(type) == "llama";
    refused(j, "attention_bias");
  }
  refused(with("num_experts", 8), "num_experts");
  refused(with("quantization_config", ordered_json::object()), "quantization_config");
  EXPECT_THROW(parse_config("{", "x"), FormatError);
  EXPECT_THROW(parse_config("[]", "x"), FormatError);
  EXPECT_THROW(load_config("/no/such/config.json"), FormatError);
}

// Counts of the specification: 399 entries, 4,411,424,256 elements with the head stored, 4.02 G
// parameters when it is counted once.
TEST(ParameterTable, Qwen3_4B) {
  NIBBLE_SHARED_FILE_OR_SKIP(file, "qwen3/config.json");
  const Config c = load_config(file);
  const auto table = parameter_table(c);
  EXPECT_EQ(table.size(), 399u);
  int64_t all = 0, linear = 0;
  for (const ParamSpec& p : table) {
    all += p.numel();
    linear += p.is_linear();
  }
  EXPECT_EQ(all, 4'411'424'256);
  EXPECT_EQ(linear, 253);
  EXPECT_EQ(c.parameter_count(), 4'411'424'256 - 151936 * 2560);
  EXPECT_EQ(c.rope.theta, 5e6);
}

}  // namespace
}  // namespace nibble::test

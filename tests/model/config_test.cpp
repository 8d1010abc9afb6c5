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
  j["rope_parameters"]["rope_type"] = "yarn";
  refused(j, "yarn");
  j = good();
  j["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  refused(j, "linear");
  EXPECT_EQ(load_config(golden_dir() / "qwen3_untied" / "config.json").rope.theta, 5e6);
}

TEST(Config, DefaultsOfOlderFiles) {
  ordered_json j = good();
  j.erase("head_dim");
  j.erase("num_key_value_heads");
  j.erase("tie_word_embeddings");
  const Config c = parse(j);
  EXPECT_EQ(c.D, 16);  // hidden_size / heads
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
  refused(with("model_type", "llama"), "model_type");
  refused(with("hidden_act", "gelu"), "hidden_act");
  refused(with("attention_bias", true), "attention_bias");
  refused(with("use_sliding_window", true), "use_sliding_window");
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

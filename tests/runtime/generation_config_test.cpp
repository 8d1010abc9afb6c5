// SPDX-License-Identifier: MIT
#include "runtime/generation_config.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace nibble::test {
namespace {

TEST(GenerationConfig, SaysHowToSample) {
  const GenerationConfig c = parse_generation_config(
      R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05,
          "repetition_penalty": 1.1, "eos_token_id": [7, 3], "max_new_tokens": 9})",
      "g.json");
  EXPECT_EQ(c.describe(),
            "temperature 0.7, top-k 20, top-p 0.8, min-p 0.05, repetition penalty 1.1");
  EXPECT_EQ(c.eos_ids, (std::vector<int32_t>{7, 3}));
  EXPECT_EQ(c.source, "g.json");
}

TEST(GenerationConfig, WithoutDoSampleItIsGreedy) {
  const GenerationConfig c = parse_generation_config(
      R"({"temperature": 0.7, "repetition_penalty": 1.2, "eos_token_id": 4})", "g.json");
  EXPECT_EQ(c.describe(), "repetition penalty 1.2");
  EXPECT_EQ(c.eos_ids, std::vector<int32_t>{4});
  EXPECT_EQ(parse_generation_config(R"({"do_sample": true})", "g").sample.temperature, 1);
  EXPECT_EQ(parse_generation_config("{}", "g").source, "");
}

TEST(GenerationConfig, BadValuesAreRefused) {
  for (const char* text :
       {"[]", "{", R"({"do_sample": 1})", R"({"do_sample": true, "temperature": -1})",
        R"({"do_sample": true, "top_p": 0})", R"({"do_sample": true, "top_k": 1.5})",
        R"({"eos_token_id": -1})", R"({"eos_token_id": "x"})", R"({"repetition_penalty": "a"})"}) {
    EXPECT_THROW(parse_generation_config(text, "g.json"), FormatError) << text;
  }
}

TEST(GenerationConfig, FlagsWin) {
  const GenerationConfig c = parse_generation_config(
      R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.1})", "g");
  SampleFlags flags;
  EXPECT_EQ(flags.over(c), c.sample);
  flags.top_k = 5;
  flags.seed = 9;
  SampleOptions s = flags.over(c);
  EXPECT_EQ(s.top_k, 5);
  EXPECT_EQ(s.temperature, 0.7);
  EXPECT_EQ(s.seed, 9u);
  // Greedy as a whole with one flag: the file's penalty, too, is put aside.
  flags = {};
  flags.temperature = 0;
  EXPECT_EQ(flags.over(c), SampleOptions());
  flags.repetition_penalty = 1.5;
  EXPECT_EQ(flags.over(c).repetition_penalty, 1.5);
}

TEST(GenerationConfig, EndTokensJoinThoseOfTheConfig) {
  Config config;
  config.V = 10;
  config.eos_ids = {3};
  GenerationConfig g;
  g.eos_ids = {3, 7};
  add_end_tokens(config, g);
  EXPECT_EQ(config.eos_ids, (std::vector<int32_t>{3, 7}));
  g.eos_ids = {10};
  EXPECT_THROW(add_end_tokens(config, g), FormatError);
}

}  // namespace
}  // namespace nibble::test

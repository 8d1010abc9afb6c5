// SPDX-License-Identifier: MIT
// Tokenizers of real GGUF files against Hugging Face's library (tokenizers 0.23).
#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/file.h"
#include "runtime/model_texts.h"
#include "support/real_weights.h"
#include "support/shared_data.h"

namespace nibble::test {
namespace {

class RealTokenizer : public testing::TestWithParam<RealModel> {};

// Qwen2.5 and Qwen3 share the vocabulary and all added tokens up to <|file_sep|>.
TEST_P(RealTokenizer, QwenEncodesTheGoldenStrings) {
  NIBBLE_WEIGHTS_OR_SKIP(weights, GetParam());
  NIBBLE_SHARED_FILE_OR_SKIP(cases, "golden/tokenizer/cases.jsonl");
  constexpr int32_t kFirstOfQwen3 = 151665;
  const Tokenizer t = load_tokenizer(weights);
  EXPECT_EQ(t.vocab_size(), kFirstOfQwen3);
  std::istringstream lines(read_text_file(cases));
  int64_t compared = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto j = nlohmann::json::parse(line);
    const auto ids = j.at("ids").get<std::vector<int32_t>>();
    if (std::ranges::any_of(ids, [](int32_t id) { return id >= kFirstOfQwen3; })) continue;
    EXPECT_EQ(t.encode(j.at("text").get<std::string>()), ids) << line;
    EXPECT_EQ(t.decode(ids), j.at("decoded").get<std::string>()) << line;
    ++compared;
  }
  EXPECT_GT(compared, 100);
}
INSTANTIATE_TEST_SUITE_P(Files, RealTokenizer, testing::Values(kQwenHalf, kQwenOneAndHalf),
                         [](const auto& i) {
                           return i.param.file == kQwenHalf.file ? "Half" : "OneAndHalf";
                         });

TEST(RealTokenizerSmolLm2, EncodesLikeHuggingFace) {
  NIBBLE_WEIGHTS_OR_SKIP(weights, kSmolLm2);
  const Tokenizer t = load_tokenizer(weights);
  const std::pair<const char*, std::vector<int32_t>> cases[] = {
      {"Hello, world! It's 2024.", {19556, 28, 905, 17, 657, 506, 216, 34, 32, 34, 36, 30}},
      {"  12  34\n\n x", {256, 33, 34, 256, 35, 36, 1116, 1792}},
      {"你是誰？ 談談UFO",
       {18645, 250, 27830, 179, 120, 125, 8083, 249, 25792, 121, 225, 179, 121, 225, 69, 12437}},
      {"\x04"
       "a\x06"
       "b ½ ٣",
       {81, 82, 216, 16738, 216, 164, 113}},
      {"<|im_start|>user\ndef f(x):\n    return x**2<|im_end|>",
       {1, 4093, 198, 1604, 275, 24, 104, 727, 472, 1003, 1792, 828, 34, 2}},
  };
  for (const auto& [text, ids] : cases) EXPECT_EQ(t.encode(text), ids) << text;
}

}  // namespace
}  // namespace nibble::test

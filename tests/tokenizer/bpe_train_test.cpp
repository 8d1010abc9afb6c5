// SPDX-License-Identifier: MIT
#include "tokenizer/bpe_train.h"
#include "support/paths.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

constexpr int32_t kLeast = 256 + 26;  // bytes and special tokens

TEST(BpeTrain, MergesTheMostFrequentPairFirst) {
  BpeTrainer trainer;
  for (int i = 0; i < 5; ++i) trainer.add("abab");
  for (int i = 0; i < 3; ++i) trainer.add("cd");
  const auto j = nlohmann::json::parse(trainer.train({.vocab_size = kLeast + 3}));
  EXPECT_EQ(j["model"]["merges"].dump(), R"([["a","b"],["ab","ab"],["c","d"]])");
  const Tokenizer t = Tokenizer::parse(j.dump(), "t");
  EXPECT_EQ(t.vocab_size(), kLeast + 3);
  EXPECT_EQ(t.encode("abab").size(), 1u);
  EXPECT_EQ(t.encode("abcd").size(), 2u);
}

TEST(BpeTrain, PairsOfPairsOverlapCorrectly) {
  BpeTrainer trainer;
  trainer.add("aaaaa");
  trainer.add("aaaaa");
  // "aa" leaves aa aa a: then (aa, aa) and (aa, a) once a word each.
  const auto j = nlohmann::json::parse(trainer.train({.vocab_size = kLeast + 9}));
  EXPECT_EQ(j["model"]["merges"].dump(), R"([["a","a"],["aa","a"],["aa","aaa"]])");
}

TEST(BpeTrain, RareStaysBytes) {
  BpeTrainer trainer;
  trainer.add("once");
  const Tokenizer t = Tokenizer::parse(trainer.train({.vocab_size = 1000}), "t");
  EXPECT_EQ(t.vocab_size(), kLeast);
  EXPECT_EQ(t.encode("once").size(), 4u);
}

TEST(BpeTrain, NoTokenHasTwoChineseCharactersAndDigitsStayAlone) {
  BpeTrainer trainer;
  for (int i = 0; i < 9; ++i) trainer.add("你是誰，我是誰？1234 12");
  const Tokenizer t = Tokenizer::parse(trainer.train({.vocab_size = 1000}), "t");
  EXPECT_EQ(t.encode("你是誰").size(), 3u);
  EXPECT_EQ(t.encode("，你是誰").size(), 4u);
  EXPECT_EQ(t.encode("1234").size(), 4u);
}

TEST(BpeTrain, QwensSpecialTokensComeLast) {
  BpeTrainer trainer;
  trainer.add("text");
  const Tokenizer t = Tokenizer::parse(trainer.train({.vocab_size = kLeast}), "t");
  EXPECT_EQ(t.endoftext(), 256);
  EXPECT_EQ(t.im_start(), 257);
  EXPECT_EQ(t.im_end(), 258);
  EXPECT_EQ(t.id_of("</think>"), kLeast - 1);
  EXPECT_TRUE(t.is_special(258));
  EXPECT_FALSE(t.is_special(kLeast - 1));
}

TEST(BpeTrain, TheOrderOfTheTextsDoesNotMatter) {
  BpeTrainer a, b;
  for (const char* t : {"hello world", "你好", "hello there"}) a.add(t), a.add(t);
  for (const char* t : {"hello there", "你好", "hello world"}) b.add(t), b.add(t);
  EXPECT_EQ(a.train({.vocab_size = 400}), b.train({.vocab_size = 400}));
}

TEST(BpeTrain, TooSmallIsRefused) {
  EXPECT_THROW(BpeTrainer().train({.vocab_size = kLeast - 1}), UsageError);
}

TEST(BpeTrain, TheMiniModelsTokenizerRoundTrips) {
  const Tokenizer t =
      Tokenizer::load(std::filesystem::path(kSourceDir) / "models/mini/tokenizer.json");
  EXPECT_EQ(t.vocab_size(), 3072);
  EXPECT_EQ(t.im_end(), 3048);
  for (const char* text : {"你是誰？", "What is the capital of France?", "37 + 45 = 82。",
                           "我是 F# 之神", "龘 emoji 🙂 ñ\n\ttab"}) {
    EXPECT_EQ(t.decode(t.encode(text)), text);
  }
  EXPECT_EQ(t.encode("你是誰").size(), 3u);
}

}  // namespace
}  // namespace nibble

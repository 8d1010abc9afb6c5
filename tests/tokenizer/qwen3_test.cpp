// SPDX-License-Identifier: MIT
// The real Qwen3 tokenizer against ids and text that Hugging Face tokenizers produced.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "core/file.h"
#include "support/shared_data.h"
#include "tokenizer/mini_tokenizer.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

using test::Json;

const Tokenizer& qwen3(const std::filesystem::path& path) {
  static const Tokenizer t = Tokenizer::load(path);
  return t;
}

TEST(Qwen3Tokenizer, known_ids) {
  NIBBLE_SHARED_FILE_OR_SKIP(path, "qwen3/tokenizer.json");
  const Tokenizer& t = qwen3(path);
  EXPECT_EQ(t.vocab_size(), 151669);
  EXPECT_EQ(t.endoftext(), 151643);
  EXPECT_EQ(t.im_start(), 151644);
  EXPECT_EQ(t.im_end(), 151645);
  EXPECT_TRUE(t.is_special(151645));
  EXPECT_FALSE(t.is_special(151667));  // <think>
  EXPECT_TRUE(t.is_added(151667));
  EXPECT_EQ(t.token_bytes(0), "!");
  EXPECT_EQ(t.token_bytes(434), " F");
}

TEST(Qwen3Tokenizer, golden_text_to_ids_and_back) {
  NIBBLE_SHARED_FILE_OR_SKIP(path, "qwen3/tokenizer.json");
  const auto cases = test::shared_dir() / "golden/tokenizer/cases.jsonl";
  if (!std::filesystem::exists(cases)) GTEST_SKIP() << cases << " is absent";
  const Tokenizer& t = qwen3(path);
  std::ifstream in(cases);
  std::string line;
  int n = 0;
  while (std::getline(in, line)) {
    const Json j = Json::parse(line);
    const auto ids = j["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(t.encode(j["text"].get<std::string>()), ids) << line;
    EXPECT_EQ(t.decode(ids), j["decoded"].get<std::string>()) << line;
    StreamDecoder stream(t);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.flush(), j["decoded"].get<std::string>()) << line;
    ++n;
  }
  EXPECT_GE(n, 100);
}

// Every token's own text: it decodes, and encodes to something that decodes to its NFC.
TEST(Qwen3Tokenizer, decode_of_encode_is_nfc) {
  NIBBLE_SHARED_FILE_OR_SKIP(path, "qwen3/tokenizer.json");
  const Tokenizer& t = qwen3(path);
  auto random = [engine = std::mt19937(4)]() mutable { return uint32_t(engine()); };
  std::string storage;
  for (int i = 0; i < 30000; ++i) {
    std::string text;
    for (unsigned n = 1 + random() % 6; n > 0; --n) {
      switch (random() % 4) {
        case 0: {
          const char32_t c = random() % 0x110000;
          append_utf8(text, c >= 0xd800 && c < 0xe000 ? U'x' : c);
          break;
        }
        case 1: append_utf8(text, 0x300 + random() % 0x70); break;
        default: text += repair_utf8(t.token_bytes(int32_t(random() % 151669))); break;
      }
    }
    for (const SpecialTokens how : {SpecialTokens::parse, SpecialTokens::plain}) {
      const auto ids = t.encode(text, how);
      const std::string nfc(normalize_nfc(text, storage));
      std::string again(t.decode(ids));
      // Between added tokens each part is normalised by itself, so marks may stay apart from them.
      if (how == SpecialTokens::parse)
        again = std::string(normalize_nfc(std::string(again), storage));
      ASSERT_EQ(again, nfc);
      if (how == SpecialTokens::plain) {
        for (const int32_t id : ids) ASSERT_FALSE(t.is_added(id));
      }
    }
  }
}

TEST(Qwen3Tokenizer, every_token_is_what_its_own_text_becomes) {
  NIBBLE_SHARED_FILE_OR_SKIP(path, "qwen3/tokenizer.json");
  const Tokenizer& t = qwen3(path);
  for (int32_t id = 0; id < t.vocab_size(); ++id) {
    ASSERT_EQ(t.id_of(t.token_text(id)), id);
    if (t.is_added(id)) {
      ASSERT_EQ(t.encode(t.token_bytes(id)), std::vector<int32_t>{id});
    }
  }
}

// The hand-written pre-tokeniser and PCRE2 with the file's own pattern give the same ids: one
// tokenizer gets a pattern that means the same but is not recognised.
TEST(Qwen3Tokenizer, pcre2_gives_the_same_ids) {
  NIBBLE_SHARED_FILE_OR_SKIP(path, "qwen3/tokenizer.json");
  const auto corpus = test::shared_dir() / "data/fullparam-diverse-mix-v1.tsv";
  if (!std::filesystem::exists(corpus)) GTEST_SKIP() << corpus << " is absent";
  std::string file = read_text_file(path);
  const size_t at = file.find("(?i:'s");
  ASSERT_NE(at, std::string::npos);
  file.insert(at, "(?:)");  // changes nothing but the text
  const Tokenizer other = Tokenizer::parse(file, "regex");
  EXPECT_NE(other.content_hash(), qwen3(path).content_hash());
  const std::string text = read_text_file(corpus);
  EXPECT_EQ(other.encode(text), qwen3(path).encode(text));
}

TEST(Qwen3Tokenizer, truncated_file_is_an_error) {
  NIBBLE_SHARED_FILE_OR_SKIP(path, "qwen3/tokenizer.json");
  const std::string file = read_text_file(path);
  for (const size_t n : {file.size() - 1, file.size() / 2, file.size() / 3, size_t(5000)}) {
    EXPECT_THROW(Tokenizer::parse(std::string_view(file).substr(0, n), "cut"), FormatError) << n;
  }
}

}  // namespace
}  // namespace nibble

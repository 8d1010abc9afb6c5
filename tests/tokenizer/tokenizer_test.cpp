// SPDX-License-Identifier: MIT
// Encoding and decoding with a small tokenizer whose result can be seen by eye.
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "core/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/mini_tokenizer.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

using test::Json;
using test::mini_tokenizer;
using Ids = std::vector<int32_t>;

// Ids of mini_tokenizer(): bytes 0..255, he ll hell hello _w e4bd 你, then the added tokens.
enum : int32_t { he = 256, ll, hell, hello, _w, e4bd, ni, endoftext, im_start, im_end, think };

Tokenizer load(const Json& j) { return Tokenizer::parse(j.dump(), "mini"); }

TEST(Tokenizer, merges_in_rank_order) {
  const Tokenizer t = load(mini_tokenizer());
  EXPECT_EQ(t.encode("hello"), Ids{hello});
  EXPECT_EQ(t.encode("hello wall"), (Ids{hello, _w, 'a', ll}));
  EXPECT_EQ(t.encode("llll"), (Ids{ll, ll}));
  EXPECT_EQ(t.encode("lll"), (Ids{ll, 'l'}));
  EXPECT_EQ(t.encode("\u4f60\u4f61"), (Ids{ni, e4bd, 0xa1}));
  EXPECT_EQ(t.encode(""), Ids{});
}

TEST(Tokenizer, added_tokens_become_ids_or_stay_text) {
  const Tokenizer t = load(mini_tokenizer());
  EXPECT_EQ(t.encode("a<|im_end|>b<think>"), (Ids{'a', im_end, 'b', think}));
  const Ids plain = t.encode("a<|im_end|>b<think>", SpecialTokens::plain);
  for (const int32_t id : plain) EXPECT_FALSE(t.is_added(id));
  EXPECT_EQ(t.decode(plain), "a<|im_end|>b<think>");
  EXPECT_EQ(t.encode("<|im_en"), t.encode("<|im_en", SpecialTokens::plain));
}

TEST(Tokenizer, leftmost_longest_added_token_wins) {
  Json j = mini_tokenizer();
  j["added_tokens"][3]["content"] = "<|im";
  j["added_tokens"][4]["content"] = "im_start|><";
  const Tokenizer t = load(j);
  EXPECT_EQ(t.encode("<|im_start|><"), (Ids{im_start, '<'}));
  EXPECT_EQ(t.encode("<|im_star"), (Ids{think, '_', 's', 't', 'a', 'r'}));
}

TEST(Tokenizer, strip_flags_take_white_space_along) {
  Json j = mini_tokenizer();
  j["added_tokens"][1]["lstrip"] = true;
  j["added_tokens"][2]["rstrip"] = true;
  const Tokenizer t = load(j);
  EXPECT_EQ(t.encode("a \u3000<|im_start|> b"), (Ids{'a', im_start, ' ', 'b'}));
  EXPECT_EQ(t.encode("a <|im_end|> \n\u3000 b"), (Ids{'a', ' ', im_end, 'b'}));
  EXPECT_EQ(t.encode("<|im_end|>  <|im_start|>"), (Ids{im_end, im_start}));
}

TEST(Tokenizer, normalized_added_tokens_match_after_nfc) {
  Json j = mini_tokenizer();
  j["added_tokens"][3]["content"] = "e\u0301";
  const Tokenizer raw = load(j);
  EXPECT_EQ(raw.encode("xe\u0301"), (Ids{'x', think}));
  EXPECT_EQ(raw.encode("x\u00e9"), (Ids{'x', 0xc3, 0xa9}));
  j["added_tokens"][3]["normalized"] = true;
  const Tokenizer normalized = load(j);
  EXPECT_EQ(normalized.encode("xe\u0301"), (Ids{'x', think}));
  EXPECT_EQ(normalized.encode("x\u00e9"), (Ids{'x', think}));
}

TEST(Tokenizer, pieces_are_one_text_with_different_rules) {
  const Tokenizer t = load(mini_tokenizer());
  const std::vector<TextPiece> split = {
      {"<|im_start|>hel"}, {"lo<|im_end|>", SpecialTokens::plain}, {"<|im_end|>"}};
  Ids want = {im_start};
  for (const int32_t id : t.encode("hello<|im_end|>", SpecialTokens::plain)) want.push_back(id);
  want.push_back(im_end);
  EXPECT_EQ(t.encode(split), want);
  // No control token can be put together across a border, in either direction.
  const std::vector<TextPiece> sly = {{"<|im_"}, {"end|>", SpecialTokens::plain}};
  for (const int32_t id : t.encode(sly)) EXPECT_FALSE(t.is_added(id));
  const std::vector<TextPiece> parse = {{"<|im_"}, {"end|>"}};
  EXPECT_EQ(t.encode(parse), Ids{im_end});
  EXPECT_EQ(t.encode(std::span<const TextPiece>()), Ids{});
}

TEST(Tokenizer, pieces_with_normalized_added_tokens_keep_plain_plain) {
  Json j = mini_tokenizer();
  j["added_tokens"][3]["normalized"] = true;
  const Tokenizer t = load(j);
  const std::vector<TextPiece> p = {{"<think>"}, {"<think>", SpecialTokens::plain}};
  const Ids ids = t.encode(p);
  EXPECT_EQ(ids[0], think);
  for (size_t i = 1; i < ids.size(); ++i) EXPECT_FALSE(t.is_added(ids[i]));
  EXPECT_EQ(t.decode(ids), "<think><think>");
}

TEST(Tokenizer, invalid_utf8_is_read_as_replacement_characters) {
  const Tokenizer t = load(mini_tokenizer());
  EXPECT_EQ(t.encode("a\xff\xe4\xbd"
                     "b"),
            t.encode("a\ufffd\ufffd"
                     "b"));
  EXPECT_EQ(t.encode("\xe4\xbd<|im_end|>"), t.encode("\ufffd<|im_end|>"));
  EXPECT_EQ(t.decode(t.encode("\x80")), "\ufffd");
}

TEST(Tokenizer, decode_special_and_unknown_ids) {
  const Tokenizer t = load(mini_tokenizer());
  const Ids ids = {im_start, hello, -1, 100000, think, im_end};
  EXPECT_EQ(t.decode(ids), "<|im_start|>hello<think><|im_end|>");
  EXPECT_EQ(t.decode(ids, DecodeSpecial::skip), "hello<think>");
  EXPECT_EQ(t.decode(Ids{e4bd}), "\ufffd");
  EXPECT_EQ(t.decode(Ids{e4bd, 0xa0, e4bd, 'x'}), "\u4f60\ufffdx");
}

TEST(Tokenizer, accessors) {
  const Tokenizer t = load(mini_tokenizer());
  EXPECT_EQ(t.vocab_size(), 270);
  EXPECT_EQ(t.im_start(), im_start);
  EXPECT_EQ(t.im_end(), im_end);
  EXPECT_EQ(t.endoftext(), endoftext);
  EXPECT_EQ(t.token_bytes(_w), " w");
  EXPECT_EQ(t.token_text(_w), "\u0120w");
  EXPECT_EQ(t.id_of("\u0120w"), _w);
  EXPECT_EQ(t.id_of(" w"), std::nullopt);
  EXPECT_EQ(t.id_of("\xff"), std::nullopt);
  EXPECT_EQ(t.id_of("<think>"), think);
  EXPECT_EQ(t.token_bytes(-1), "");
  EXPECT_EQ(t.token_bytes(270), "");
  EXPECT_TRUE(t.is_special(im_end));
  EXPECT_FALSE(t.is_special(think));
  EXPECT_TRUE(t.is_added(think));
  EXPECT_FALSE(t.is_added(hello));
  EXPECT_FALSE(t.is_special(999));
}

TEST(Tokenizer, ignore_merges_takes_whole_words) {
  Json j = mini_tokenizer({{"a", "b"}, {"b", "c"}});
  j["model"]["vocab"]["abc"] = 265;
  const Tokenizer merging = load(j);
  EXPECT_EQ(merging.encode("abc"), (Ids{256, 'c'}));
  EXPECT_EQ(merging.encode("abc"), (Ids{256, 'c'}));  // also when it has been seen before
  j["model"]["ignore_merges"] = true;
  EXPECT_EQ(load(j).encode("abc"), Ids{265});
  EXPECT_EQ(load(j).encode("abcd"), (Ids{256, 'c', 'd'}));
}

TEST(Tokenizer, without_normalizer_text_stays_as_it_is) {
  Json j = mini_tokenizer();
  j["normalizer"] = nullptr;
  EXPECT_EQ(load(j).decode(load(j).encode("e\u0301")), "e\u0301");
  EXPECT_EQ(load(mini_tokenizer()).decode(load(mini_tokenizer()).encode("e\u0301")), "\u00e9");
}

TEST(Tokenizer, other_patterns_run_too) {
  Json j = mini_tokenizer();
  j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  EXPECT_EQ(load(j).encode("hello wa"), (Ids{hello, _w, 'a'}));
  Json k = mini_tokenizer();
  k["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "l";
  EXPECT_EQ(load(k).encode("hello"), (Ids{he, 'l', 'l', 'o'}));
}

// The plainest form of the rule, quadratic.
Ids naive_bpe(const std::string& word,
              const std::vector<std::pair<std::string, std::string>>& merges, const Tokenizer& t) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t r = 0; r < best; ++r) {
        if (merges[r].first == parts[i] && merges[r].second == parts[i + 1]) {
          best = r;
          at = i;
        }
      }
    }
    if (best == merges.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + std::ptrdiff_t(at) + 1);
  }
  Ids ids;
  for (const std::string& p : parts) ids.push_back(*t.id_of(p));
  return ids;
}

TEST(Tokenizer, random_merges_short_and_long_words_follow_the_rule) {
  auto random = [engine = std::mt19937(5)]() mutable { return uint32_t(engine()); };
  for (int round = 0; round < 30; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int k = 0; k < 25; ++k) {
      const std::string a = tokens[random() % tokens.size()], b = tokens[random() % tokens.size()];
      if (a.size() + b.size() > 12 ||
          std::find(tokens.begin(), tokens.end(), a + b) != tokens.end()) {
        continue;
      }
      tokens.push_back(a + b);
      merges.emplace_back(a, b);
    }
    std::shuffle(merges.begin(), merges.end(),
                 std::mt19937(unsigned(round)));  // ranks need not follow the making
    const Tokenizer t = load(mini_tokenizer(merges));
    for (const size_t length : {2u, 3u, 7u, 30u, 95u, 96u, 97u, 98u, 150u}) {
      for (int i = 0; i < 10; ++i) {
        std::string word;
        while (word.size() < length) word += char('a' + random() % 3);
        ASSERT_EQ(t.encode(word), naive_bpe(word, merges, t)) << word;
        ASSERT_EQ(t.encode(word), naive_bpe(word, merges, t)) << word;
      }
    }
  }
}

TEST(Tokenizer, a_very_long_word_takes_no_quadratic_time) {
  const Tokenizer t = load(mini_tokenizer());
  const std::string word(4'000'000, 'l');
  EXPECT_EQ(t.encode(word).size(), word.size() / 2);
}

TEST(Tokenizer, threads_share_one_tokenizer) {
  const Tokenizer t = load(mini_tokenizer());
  const std::string text = "hello wall \u4f60 hell hello<|im_end|>";
  const Ids want = load(mini_tokenizer()).encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) wrong += t.encode(text) != want;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace nibble

// SPDX-License-Identifier: MIT
// Forms of tokenizer.json that are accepted, refused by name, or damaged.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "tokenizer/mini_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

using test::Json;
using test::mini_tokenizer;
using test::mini_tokenizer_text;

Tokenizer load(const Json& j) { return Tokenizer::parse(j.dump(), "mini.json"); }

std::string refusal(const Json& j) {
  try {
    load(j);
  } catch (const FormatError& e) {
    return e.what();
  }
  return "";
}

Json merges_as_strings(Json j) {
  for (Json& m : j["model"]["merges"]) m = m[0].get<std::string>() + " " + m[1].get<std::string>();
  return j;
}

TEST(LoadTokenizer, both_forms_of_merges_are_the_same_tokenizer) {
  const Tokenizer a = load(mini_tokenizer()), b = load(merges_as_strings(mini_tokenizer()));
  EXPECT_EQ(a.content_hash(), b.content_hash());
  EXPECT_EQ(b.encode("hello \u4f60"), a.encode("hello \u4f60"));
}

TEST(LoadTokenizer, order_and_layout_of_the_file_do_not_matter) {
  const Json j = mini_tokenizer();
  Json model = Json::object(), reversed = Json::object(), vocab = Json::object();
  for (auto it = j["model"]["vocab"].rbegin(); it != j["model"]["vocab"].rend(); ++it) {
    vocab[it.key()] = it.value();
  }
  for (auto it = j["model"].rbegin(); it != j["model"].rend(); ++it) model[it.key()] = it.value();
  model["vocab"] = vocab;
  for (auto it = j.rbegin(); it != j.rend(); ++it) reversed[it.key()] = it.value();
  reversed["model"] = model;
  const Tokenizer a = load(j), b = Tokenizer::parse(reversed.dump(3), "reversed");
  const Tokenizer c = Tokenizer::parse(j.dump(-1, ' ', true), "ascii");  // \u escapes
  const auto want = a.encode("hello<|im_end|> \u4f60");
  EXPECT_EQ(b.encode("hello<|im_end|> \u4f60"), want);
  EXPECT_EQ(b.content_hash(), a.content_hash());
  EXPECT_EQ(c.content_hash(), a.content_hash());
}

Json digits_one_by_one(Json j) {
  j["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Digits"}, {"individual_digits", true}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}};
  return j;
}

// GPT-2's pattern sees each stretch between digits as a text of its own: the spaces before a digit
// are one piece, where the pattern alone leaves the last one to the digit.
TEST(LoadTokenizer, digits_one_by_one_cut_first) {
  Json j = mini_tokenizer({{" ", " "}, {"1", "2"}, {" ", "1"}});
  const Tokenizer cut = load(digits_one_by_one(j));
  const auto texts = [&](const Tokenizer& t, std::string_view text) {
    std::vector<std::string> out;
    for (const int32_t id : t.encode(text)) out.push_back(t.token_text(id));
    return out;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts(cut, "  12"), (Texts{"\u0120\u0120", "1", "2"}));  // "12" is never one
  EXPECT_EQ(texts(cut, "\u00bd"), (Texts{"\u00c2", "\u00bd"}));      // a number, too
  j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  EXPECT_EQ(texts(load(j), "  12"), (Texts{"\u0120", "\u0120", "12"}));
  EXPECT_NE(cut.content_hash(), load(j).content_hash());
  Json runs = digits_one_by_one(mini_tokenizer());
  runs["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false;
  EXPECT_NE(refusal(runs).find("one by one"), std::string::npos);
}

// Vocabularies made of text lack bytes that no text has; they vanish, as in Hugging Face's library.
TEST(LoadTokenizer, bytes_without_a_token_vanish) {
  const Json whole_file = mini_tokenizer({{"!", "!"}});
  Json j = whole_file;
  const auto id = j["model"]["vocab"]["\u0104"];  // of byte 4
  j["model"]["vocab"].erase("\u0104");
  j["model"]["vocab"]["\u0104\u0104"] = id;
  const Tokenizer t = load(j), whole = load(whole_file);
  EXPECT_EQ(t.encode("!\x04!"), whole.encode("!!"));
  EXPECT_EQ(t.encode("\x04"), std::vector<int32_t>{});
  EXPECT_EQ(t.encode("a \x04 b"), whole.encode("a  b"));
  j["model"]["unk_token"] = "a";
  EXPECT_NE(refusal(j).find("unk_token is not supported"), std::string::npos);
}

TEST(LoadTokenizer, post_processors_add_nothing_here) {
  Json j = mini_tokenizer();
  j["post_processor"] = {{"type", "Sequence"},
                         {"processors", {j["decoder"], {{"type", "TemplateProcessing"}}}}};
  EXPECT_EQ(load(j).encode("hello"), load(mini_tokenizer()).encode("hello"));
  j["post_processor"]["processors"].push_back({{"type", "Sequence"}});
  EXPECT_NE(refusal(j).find("nested"), std::string::npos);
}

TEST(LoadTokenizer, content_hash_is_stable_and_sees_changes) {
  const uint64_t hash = load(mini_tokenizer()).content_hash();
  EXPECT_EQ(hash, 0x1c3da545bca5c226u)
      << "if this is meant to change, stored hashes become invalid";
  const std::vector<std::function<void(Json&)>> changes = {
      [](Json& j) { j["normalizer"] = nullptr; },
      [](Json& j) { j["added_tokens"][0]["special"] = false; },
      [](Json& j) { j["added_tokens"][0]["lstrip"] = true; },
      [](Json& j) { j["added_tokens"][0]["content"] = "<|other|>"; },
      [](Json& j) { j["model"]["ignore_merges"] = true; },
      [](Json& j) { std::swap(j["model"]["merges"][0], j["model"]["merges"][1]); },
      [](Json& j) { std::swap(j["model"]["vocab"]["a"], j["model"]["vocab"]["b"]); },
      [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "x"; },
  };
  for (const auto& change : changes) {
    Json j = mini_tokenizer();
    change(j);
    EXPECT_NE(load(j).content_hash(), hash);
  }
}

TEST(LoadTokenizer, added_tokens_may_also_stand_in_the_vocabulary) {
  Json j = mini_tokenizer();
  const Json first = j["added_tokens"][0];
  j["model"]["vocab"][first["content"].get<std::string>()] = first["id"];
  EXPECT_EQ(load(j).endoftext(), first["id"].get<int>());
  j["model"]["vocab"]["<think>"] = 5000;
  EXPECT_NE(refusal(j), "");
}

struct Case {
  const char* message;  // part of it
  std::function<void(Json&)> change;
};

TEST(LoadTokenizer, what_is_not_supported_is_refused_by_name) {
  const std::vector<Case> cases = {
      {"single_word", [](Json& j) { j["added_tokens"][0]["single_word"] = true; }},
      {"unknown key 'color'", [](Json& j) { j["added_tokens"][0]["color"] = 1; }},
      {"unknown key 'extra'", [](Json& j) { j["extra"] = 1; }},
      {"unknown key 'extra'", [](Json& j) { j["model"]["extra"] = 1; }},
      {"truncation",
       [](Json& j) {
         j["truncation"] = {{"max_length", 5}};
       }},
      {"padding",
       [](Json& j) {
         j["padding"] = {{"pad_id", 5}};
       }},
      {"version", [](Json& j) { j["version"] = "2.0"; }},
      {"NFKC",
       [](Json& j) {
         j["normalizer"] = {{"type", "NFKC"}};
       }},
      {"normalizer", [](Json& j) { j["normalizer"] = 5; }},
      {"WordPiece", [](Json& j) { j["model"]["type"] = "WordPiece"; }},
      {"dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }},
      {"end_of_word_suffix", [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }},
      {"continuing_subword", [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }},
      {"pre_tokenizer", [](Json& j) { j["pre_tokenizer"] = nullptr; }},
      {"use_regex", [](Json& j) { j["pre_tokenizer"] = j["decoder"]; }},
      {"Isolated", [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }},
      {"invert", [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; }},
      {"add_prefix_space",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; }},
      {"pattern",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "("; }},
      {"unknown key 'String'",
       [](Json& j) {
         j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", "x"}};
       }},
      {"post_processor",
       [](Json& j) {
         j["post_processor"] = {{"type", "RobertaProcessing"}};
       }},
      {"decoder",
       [](Json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       }},
      {"decoder", [](Json& j) { j["decoder"] = nullptr; }},
  };
  for (const Case& c : cases) {
    Json j = mini_tokenizer();
    c.change(j);
    const std::string said = refusal(j);
    EXPECT_NE(said.find(c.message), std::string::npos) << c.message << " <- " << said;
    EXPECT_EQ(said.find("mini.json: "), 0u) << said;
  }
}

TEST(LoadTokenizer, inconsistent_tables_are_refused) {
  const std::vector<Case> cases = {
      {"used twice", [](Json& j) { j["model"]["vocab"]["a"] = 5; }},
      {"used by no token", [](Json& j) { j["model"]["vocab"]["a"] = 2000000000; }},
      {"used by no token", [](Json& j) { j["added_tokens"].erase(2); }},
      {"too large", [](Json& j) { j["model"]["vocab"]["a"] = 3000000000u; }},
      {"whole number", [](Json& j) { j["model"]["vocab"]["a"] = -1; }},
      {"whole number", [](Json& j) { j["model"]["vocab"]["a"] = "5"; }},
      {"empty token", [](Json& j) { j["model"]["vocab"][""] = 5; }},
      {"the token of 'a'",
       [](Json& j) {
         j["model"]["vocab"].erase("a");
         j["model"]["vocab"]["zz"] = 97;
       }},
      {"unknown token 'qq'",
       [](Json& j) {
         j["model"]["merges"].push_back({"a", "qq"});
       }},
      {"lacks",
       [](Json& j) {
         j["model"]["merges"].push_back({"a", "b"});
       }},
      {"stands there twice",
       [](Json& j) {
         j["model"]["merges"].push_back({"h", "e"});
       }},
      {"byte alphabet",
       [](Json& j) {
         j["model"]["merges"].push_back({"\u4f60", "b"});
       }},
      {"more than two",
       [](Json& j) {
         j["model"]["merges"].push_back({"a", "b", "c"});
       }},
      {"one token", [](Json& j) { j["model"]["merges"].push_back(Json::array({"a"})); }},
      {"empty merge", [](Json& j) { j["model"]["merges"].push_back(Json::array()); }},
      {"two tokens", [](Json& j) { j["model"]["merges"].push_back("ab"); }},
      {"two tokens", [](Json& j) { j["model"]["merges"].push_back("a b c"); }},
      {"expected '\"'", [](Json& j) { j["model"]["merges"].push_back(5); }},
      {"expected '['", [](Json& j) { j["model"]["merges"] = 5; }},
      {"no 'merges'", [](Json& j) { j["model"].erase("merges"); }},
      {"no 'vocab'", [](Json& j) { j["model"].erase("vocab"); }},
      {"no model", [](Json& j) { j.erase("model"); }},
      {"an added token is empty", [](Json& j) { j["added_tokens"][0]["content"] = ""; }},
      {"no token id", [](Json& j) { j["added_tokens"][0]["id"] = -4; }},
      {"no token id", [](Json& j) { j["added_tokens"][0].erase("id"); }},
      {"not true or false", [](Json& j) { j["added_tokens"][0]["special"] = "yes"; }},
      {"not an array", [](Json& j) { j["added_tokens"] = 5; }},
      {"not an object", [](Json& j) { j["added_tokens"][0] = 5; }},
      {"twice",
       [](Json& j) {
         j["added_tokens"].push_back(j["added_tokens"][0]), j["added_tokens"][7]["id"] = 270;
       }},
      {"special token",
       [](Json& j) {
         Json& last = j["added_tokens"].back();
         last["content"] = "hello";
         last["id"] = 259;
         last["special"] = true;
       }},
  };
  for (const Case& c : cases) {
    Json j = mini_tokenizer();
    c.change(j);
    const std::string said = refusal(j);
    EXPECT_NE(said.find(c.message), std::string::npos) << c.message << " <- " << said;
  }
}

TEST(LoadTokenizer, the_same_added_token_twice_is_refused) {
  Json j = mini_tokenizer();
  j["added_tokens"].push_back(j["added_tokens"][0]);
  EXPECT_NE(refusal(j).find("twice"), std::string::npos) << refusal(j);
}

TEST(LoadTokenizer, repeated_keys_are_refused) {
  const std::string good = mini_tokenizer_text();
  for (const char* key :
       {"\"model\":", "\"decoder\":", "\"vocab\":", "\"merges\":", "\"type\":\"BPE\""}) {
    std::string twice = good;
    const std::string extra = std::string(key).find("type") == 1 ? "\"type\":\"BPE\"," : "";
    const size_t at = twice.find(key);
    ASSERT_NE(at, std::string::npos);
    if (extra.empty()) {
      twice.insert(at, std::string(key) + (key == std::string("\"merges\":") ? "[]," : "{},"));
    } else {
      twice.insert(at, extra);
    }
    EXPECT_THROW(Tokenizer::parse(twice, "t"), FormatError) << key;
  }
  std::string token = good;
  token.insert(token.find("\"vocab\":{") + 9, "\"a\":0,");
  EXPECT_THROW(Tokenizer::parse(token, "t"), FormatError);
}

TEST(LoadTokenizer, every_truncation_is_an_error) {
  const std::string good = merges_as_strings(mini_tokenizer()).dump();
  for (size_t n = 0; n < good.size(); ++n) {
    ASSERT_THROW(Tokenizer::parse(good.substr(0, n), "t"), FormatError) << n;
  }
  EXPECT_THROW(Tokenizer::parse(good + "x", "t"), FormatError);
  EXPECT_NO_THROW(Tokenizer::parse(good + " \n", "t"));
}

TEST(LoadTokenizer, damaged_bytes_load_or_throw_format_error) {
  const std::string good = mini_tokenizer_text();
  auto random = [engine = std::mt19937(1)]() mutable { return uint32_t(engine()); };
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    for (unsigned k = 1 + random() % 3; k > 0; --k) bad[random() % bad.size()] = char(random());
    try {
      const Tokenizer t = Tokenizer::parse(bad, "t");
      t.decode(t.encode("hello <|im_end|> \u4f60"));
    } catch (const FormatError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST(LoadTokenizer, invalid_utf8_names_the_byte) {
  std::string bad = mini_tokenizer_text();
  bad[7] = '\xff';
  try {
    Tokenizer::parse(bad, "f.json");
    FAIL();
  } catch (const FormatError& e) {
    EXPECT_STREQ(e.what(), "f.json: byte 7 is not UTF-8");
  }
}

TEST(LoadTokenizer, a_missing_file_is_a_format_error) {
  EXPECT_THROW(Tokenizer::load("/nonexistent/tokenizer.json"), FormatError);
}

}  // namespace
}  // namespace nibble

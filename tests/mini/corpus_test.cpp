// SPDX-License-Identifier: MIT
#include "mini/corpus.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "data/files.h"
#include "data/records.h"
#include "support/paths.h"
#include "tokenizer/bpe_train.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;
using test::TempDir;

TEST(Corpus, TheSameBytesWhateverTheThreads) {
  const TempDir dir;
  ThreadPool one(1), three(3);
  write_corpus(dir / "a", {5, 9000}, one);
  write_corpus(dir / "b", {5, 9000}, three);
  write_corpus(dir / "c", {6, 9000}, one);
  for (const char* name : {"pretrain.jsonl", "chat.jsonl", "eval.jsonl"}) {
    const std::string a = read_text_file(dir / "a" / name);
    EXPECT_EQ(a, read_text_file(dir / "b" / name)) << name;
    EXPECT_NE(a, read_text_file(dir / "c" / name)) << name;
  }
}

TEST(Corpus, ASmallerCorpusIsTheBeginningOfALargerOne) {
  const TempDir dir;
  ThreadPool pool(2);
  write_corpus(dir / "small", {5, 3000}, pool);
  write_corpus(dir / "large", {5, 9000}, pool);
  const std::string small = read_text_file(dir / "small" / "pretrain.jsonl");
  EXPECT_EQ(read_text_file(dir / "large" / "pretrain.jsonl").substr(0, small.size()), small);
}

TEST(Corpus, NothingIsOverwritten) {
  const TempDir dir;
  ThreadPool pool(1);
  std::filesystem::create_directories(dir / "a");
  replace_file(dir / "a" / "chat.jsonl", "mine\n");
  EXPECT_THROW(write_corpus(dir / "a", {1, 10}, pool), UsageError);
  EXPECT_EQ(read_text_file(dir / "a" / "chat.jsonl"), "mine\n");
  EXPECT_FALSE(std::filesystem::exists(dir / "a" / "pretrain.jsonl"));
}

TEST(Corpus, LinesAreWhatPretrainReads) {
  const TempDir dir;
  ThreadPool pool(2);
  const CorpusCounts counts = write_corpus(dir / "a", {1, 3000}, pool);
  EXPECT_EQ(counts.documents, 3000 + 1000 + 1000);
  int texts = 0, conversations = 0;
  for (const DataLine& d : read_data_lines(dir / "a" / "pretrain.jsonl")) {
    const ordered_json j = ordered_json::parse(d.line);
    if (j.contains("text")) {
      ++texts;
      continue;
    }
    const ordered_json& m = j.at("messages");
    ASSERT_EQ(m.size() % 2, 0u);
    for (size_t i = 0; i < m.size(); ++i) {
      EXPECT_EQ(m[i].at("role"), i % 2 == 0 ? "user" : "assistant");
    }
    conversations += m.size() > 2 ? 1 : 0;
  }
  EXPECT_NEAR(texts, 150, 60);
  EXPECT_GT(conversations, 200);
  for (const DataLine& d : read_data_lines(dir / "a" / "chat.jsonl")) {
    EXPECT_TRUE(ordered_json::parse(d.line).contains("messages"));
  }
}

// The recipe in tools/make_mini.sh makes the shipped file, on any machine.
TEST(Corpus, TheMiniModelsTokenizerIsMadeOfIt) {
  const TempDir dir;
  ThreadPool pool(2);
  write_corpus(dir / "a", {20260226, 60000}, pool);
  BpeTrainer trainer;
  for (const DataLine& d : read_data_lines(dir / "a" / "pretrain.jsonl")) {
    for (const std::string& t : d.texts) trainer.add(t);
  }
  const auto shipped = std::filesystem::path(kSourceDir) / "models/mini/tokenizer.json";
  EXPECT_TRUE(trainer.train({.vocab_size = 3072}) == read_text_file(shipped));
}

TEST(IdentitySet, SharesAreExactAndOthersKeepTheirReplies) {
  IdentitySetOptions o;
  o.samples = 1000;
  o.identity_share = 0.2;
  o.disambiguation_share = 0.5;
  o.identity = {"我是測試", "I am a test"};
  const TempDir dir;
  const auto file = dir.write("a.jsonl", make_identity_set(o, false));
  int identity = 0, base = 0;
  const auto lines = read_data_lines(file);
  ASSERT_EQ(lines.size(), 1000u);
  for (const DataLine& d : lines) {
    identity += d.texts.back() == "我是測試" || d.texts.back() == "I am a test" ? 1 : 0;
    base += d.texts.back().find("Nibble") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(identity, 200);
  EXPECT_EQ(base, 0);
  EXPECT_EQ(make_identity_set(o, false), make_identity_set(o, false));
}

TEST(IdentitySet, ConversationsKeepApartWhoIsWho) {
  IdentitySetOptions o;
  o.samples = 1000;
  o.identity_share = 0.2;
  o.disambiguation_share = 0.3;
  const std::string without = make_identity_set(o, false);
  o.conversation_share = 0.4;
  o.identity = {"我是測試", "I am a test"};
  const std::string with = make_identity_set(o, false);
  EXPECT_EQ(with, make_identity_set(o, false));
  EXPECT_NE(with, without);
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  int several = 0, both = 0, named = 0;
  std::istringstream in(with);
  for (std::string line; std::getline(in, line);) {
    const auto messages = nlohmann::json::parse(line)["messages"];
    int users = 0;
    std::string replies;
    for (const auto& m : messages) {
      users += m["role"] == "user";
      if (m["role"] == "assistant") replies += m["content"].get<std::string>() + "\n";
    }
    const bool model = contains(replies, "我是測試") || contains(replies, "I am a test");
    const bool asker = contains(replies, "你是") || contains(replies, "You are the person") ||
                       contains(replies, "your name") || contains(replies, "你的名字");
    several += users > 1;
    both += users > 1 && model && asker;
    named += users > 1 && (contains(replies, "你好，") || contains(replies, "Hello, "));
    EXPECT_FALSE(contains(replies, "Nibble")) << line;
    EXPECT_FALSE(contains(replies, "你是測試")) << line;
  }
  EXPECT_GE(several, 400);
  EXPECT_GT(both, 200);
  EXPECT_GT(named, 100);
  EXPECT_THROW(make_identity_set(o, true), UsageError);
  o.conversation_share = 0.6;
  EXPECT_THROW(make_identity_set(o, false), UsageError);
}

TEST(IdentitySet, TsvHasSingleTurns) {
  IdentitySetOptions o;
  o.samples = 300;
  const TempDir dir;
  const auto file = dir.write("a.tsv", make_identity_set(o, true));
  EXPECT_EQ(read_data_lines(file).size(), 300u);
}

TEST(IdentitySet, SharesBeyondOneAreRefused) {
  IdentitySetOptions o;
  o.identity_share = 0.7;
  o.disambiguation_share = 0.4;
  try {
    make_identity_set(o, false);
    FAIL() << "nothing thrown";
  } catch (const UsageError& e) {
    const std::string what = e.what();
    for (const char* says : {"--identity-share 0.7", "--disambiguation-share 0.4", "more than 1"}) {
      EXPECT_NE(what.find(says), what.npos) << what;
    }
  }
}

TEST(IdentitySet, AnAnswerTheFileCannotHoldIsRefused) {
  for (const char* text : {"", "  ", "\xff"}) {
    IdentitySetOptions o;
    o.identity.en = text;
    EXPECT_THROW(make_identity_set(o, false), UsageError) << text;
  }
  IdentitySetOptions o;
  o.identity.zh = "兩行\n文字";
  EXPECT_THROW(make_identity_set(o, true), UsageError);
  EXPECT_NO_THROW(make_identity_set(o, false));  // JSON can
}

}  // namespace
}  // namespace nibble

// SPDX-License-Identifier: MIT
// Data as people have it, from the command line: a log that chat really wrote is training data, and
// keys that say nothing are counted or refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/train_support.h"
#include "tokenizer/tokenizer.h"
#include "train/dataset.h"

namespace nibble::test {
namespace {

class DataAsPeopleHaveIt : public TrainingTest {
 protected:
  static std::string mini() {
    return (std::filesystem::path(kSourceDir) / "models" / "mini").string();
  }
};

TEST_F(DataAsPeopleHaveIt, ALogOfChatGivesTheTokensOfItsMessages) {
  const std::string log = file("chat.jsonl");
  const CliResult said = cli({"chat", "--model", mini(), "--device", "cpu", "--max-tokens", "40",
                              "--system", "be brief", "--tee-jsonl", log},
                             "hello\n你是誰\n");
  ASSERT_EQ(said.code, 0) << said.err;
  std::string messages;  // the same, as other programs write it
  for (const nlohmann::json& turn : read_jsonl(log)) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& m : turn.at("messages")) {
      list.push_back({{"role", m.at("role")}, {"content", m.at("text")}});
    }
    list.push_back({{"role", "assistant"}, {"content", turn.at("output")}});
    messages += nlohmann::json{{"messages", list}}.dump() + "\n";
  }
  const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(mini()) / "tokenizer.json");
  DatasetOptions strict;  // the time in the log is no stranger
  strict.extra = ExtraKeys::refuse;
  const Dataset got = load_dataset(log, tokenizer, strict);
  const Dataset want = load_dataset(write("messages.jsonl", messages), tokenizer, strict);
  ASSERT_EQ(want.size(), 2);
  ASSERT_EQ(got.size(), 2);
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(std::ranges::equal(got.sample(i).ids, want.sample(i).ids)) << i;
    EXPECT_TRUE(std::ranges::equal(got.sample(i).flags, want.sample(i).flags)) << i;
  }
  EXPECT_EQ(got.content_hash(), want.content_hash());
}

TEST_F(DataAsPeopleHaveIt, KeysThatSayNothingAreCountedOrRefused) {
  const std::string data = write("alpaca.json",
                                 R"([{"id": 1, "instruction": "a", "output": "b", "lang": "en"},
 {"id": 2, "instruction": "c", "input": "", "output": "d"}])");
  const std::string log = cli_log(train_arguments({{"--train-data", data}}));
  EXPECT_TRUE(contains(log, "\"id\" in 2 lines")) << log;
  EXPECT_TRUE(contains(log, "\"lang\" in 1 line")) << log;
  const auto record = nlohmann::json::parse(read_text_file(file("runs/run/run.json")));
  EXPECT_TRUE(contains(record.at("warnings").dump(), "in 2 lines")) << record.at("warnings");
  refused({{"--train-data", data}, {"--strict-data", "true"}}, 3,
          "alpaca.json:1: \"id\" says nothing here");
}

// The losses of a run do not tell in which of the files its conversations stood.
TEST_F(DataAsPeopleHaveIt, TheSameTrainingFromEveryShape) {
  const auto losses = [&](const std::string& name, const std::string& text) {
    return column<double>("loss", {{"--train-data", write(name, text)}});
  };
  const std::vector<double> want = losses(
      "messages.jsonl",
      R"({"messages": [{"role": "user", "content": "who"}, {"role": "assistant", "content": "me"}]})");
  ASSERT_EQ(want.size(), 2u);
  const std::vector<std::pair<std::string, std::string>> all = {
      {"sharegpt.json",
       R"([{"conversations": [{"from": "human", "value": "who"}, {"from": "gpt", "value": "me"}]}])"},
      {"alpaca.jsonl", R"({"instruction": "who", "input": "", "output": "me"})"},
      {"pairs.jsonl", R"({"prompt": "who", "completion": "me"})"},
      {"table.csv", "prompt,completion\nwho,me\n"},
      {"pairs.tsv", "prompt\ttarget\nwho\tme\n"}};
  for (const auto& [name, text] : all) EXPECT_EQ(losses(name, text), want) << name;
}

}  // namespace
}  // namespace nibble::test

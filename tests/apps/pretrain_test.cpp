// SPDX-License-Identifier: MIT
// nibble pretrain: random weights and plain text to a model that runs.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/train_support.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class Pretrain : public TrainingTest {
 protected:
  static constexpr const char* kText =
      "hello world,\nhello again\n\nwhat a fine day it is\n\n# not a comment\tat all\n";

  void SetUp() override { write("text.txt", kText); }
  std::vector<std::string> pretrain_arguments(const Options& given) const {
    return arguments("pretrain",
                     {{"--config", shared_->file("m/config.json")},
                      {"--train-data", file("text.txt")},
                      {"--output", file("out")},
                      {"--steps", "2"},
                      {"--lr", "1e-3"},
                      {"--seq-len", "16"},
                      {"--sample-mode", "sequential"},
                      {"--threads", "1"},
                      {"--self-test", "false"},
                      {"--runs-dir", file("runs")},
                      {"--run-name", "run"}},
                     given);
  }
  // The exported weights of a run that must succeed.
  std::string pretrained(Options given) {
    const std::string name = "out" + std::to_string(++runs_);
    given.emplace("--output", file(name));
    given["--run-name"] = name;
    const CliResult r = cli(pretrain_arguments(given));
    EXPECT_EQ(r.code, 0) << r.err << r.out;
    last_out_ = r.out;
    return file_bytes(fs::path(given["--output"]) / "model.safetensors");
  }
  std::vector<nlohmann::json> last_metrics() const {
    return read_jsonl(dir_.path() / "runs" / ("out" + std::to_string(runs_)) / "metrics.jsonl");
  }
  void pretrain_refused(const Options& given, int code, const std::string& part) {
    const CliResult r = cli(pretrain_arguments(given));
    EXPECT_EQ(r.code, code) << r.err << r.out;
    EXPECT_TRUE(contains(r.err, part)) << r.err;
  }
};

TEST_F(Pretrain, FromAConfigAndATextToAModelThatRuns) {
  pretrained({{"--self-test", "true"}});
  EXPECT_TRUE(contains(last_out_, "self-test: loss of the first sample ")) << last_out_;
  const auto lines = last_metrics();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NEAR(lines[0]["loss"].get<double>(), std::log(288), 0.5);  // knows nothing yet
  EXPECT_EQ(lines[0]["tokens"], 16);
  for (const char* name : {"config.json", "tokenizer.json"}) {
    EXPECT_EQ(file_bytes(dir_.path() / "out1" / name), file_bytes(fs::path(model()) / name));
  }
  const std::string reply = cli_ok({"generate", "--model", file("out1"), "--prompt", "hello",
                                    "--raw", "--max-tokens", "4", "--print-ids"});
  EXPECT_FALSE(reply.empty());
  // The start is kept and is what init makes with that seed.
  cli_ok({"init", "--config", shared_->file("m/config.json"), "--seed", "20260226", "--out",
          file("random.safetensors")});
  EXPECT_TRUE(file_bytes(file("out1.init.safetensors")) == file_bytes(file("random.safetensors")));
}

TEST_F(Pretrain, LearnsTheTextByHeart) {
  write("short.txt", "hello world\n");
  pretrained({{"--train-data", file("short.txt")}, {"--steps", "60"}, {"--lr", "1e-2"}});
  EXPECT_LT(last_metrics().back()["loss"].get<double>(), 0.5);
}

TEST_F(Pretrain, TextAndJsonlAreTheSameDocuments) {
  const std::string usual = pretrained({});
  const std::string jsonl =
      write("text.jsonl",
            "{\"text\":\"hello world,\\nhello again\"}\n{\"text\":\"what a fine day it is\"}\n"
            "{\"text\":\"# not a comment\\tat all\"}\n");
  EXPECT_TRUE(pretrained({{"--train-data", jsonl}}) == usual);
  EXPECT_TRUE(pretrained({{"--train-data", write("a.data", kText)}, {"--data-format", "text"}}) ==
              usual);
  EXPECT_TRUE(pretrained({{"--train-data", write("b.data", read_text_file(jsonl))},
                          {"--data-format", "jsonl"}}) == usual);
  // Conversations are documents, too.
  pretrained({{"--train-data", write("c.data", kPairs)}, {"--data-format", "tsv"}});
  pretrain_refused({{"--train-data", file("a.data")}}, 2, "the name does not tell the format");
}

TEST_F(Pretrain, OneDocument) {
  const auto documents = [&](const Options& given) {
    Options more = {
        {"--export", "false"}, {"--output", kLeaveOut}, {"--init-file", file("init.safetensors")}};
    more.insert(given.begin(), given.end());
    const std::string log = cli_log(pretrain_arguments(more));
    const size_t at = log.find(" documents");
    return at == std::string::npos
               ? ""
               : log.substr(log.rfind(' ', at - 1) + 1, at - log.rfind(' ', at - 1) - 1);
  };
  EXPECT_EQ(documents({}), "3");
  EXPECT_EQ(documents({{"--one-document", "true"}}), "1");
  pretrain_refused(
      {{"--one-document", "true"}, {"--train-data", write("x.jsonl", "{\"text\":\"a\"}\n")}}, 2,
      "--one-document is about plain text");
}

TEST_F(Pretrain, TheSeedDecidesTheStart) {
  const std::string one = pretrained({{"--seed", "1"}});
  EXPECT_TRUE(pretrained({{"--seed", "1"}}) == one);
  EXPECT_FALSE(pretrained({{"--seed", "2"}}) == one);
}

TEST_F(Pretrain, InitFile) {
  const std::string init = file("start/init.safetensors");
  const std::string usual = pretrained({{"--init-file", init}});
  ASSERT_TRUE(fs::exists(init));
  EXPECT_FALSE(fs::exists(file("out1.init.safetensors")));
  // One that exists is the start, whatever the seed.
  const std::string before = file_bytes(init);
  cli_ok({"init", "--config", shared_->file("m/config.json"), "--seed", "9", "--out",
          file("nine.safetensors")});
  EXPECT_FALSE(pretrained({{"--init-file", file("nine.safetensors")}}) == usual);
  EXPECT_TRUE(pretrained({{"--init-file", init}}) == usual);
  EXPECT_TRUE(file_bytes(init) == before);
  // Without --output the model lies in the run's folder.
  const CliResult r = cli(pretrain_arguments(
      {{"--init-file", init}, {"--output", kLeaveOut}, {"--run-name", "folder"}}));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(file_bytes(file("runs/folder/model/model.safetensors")) == usual);
  pretrain_refused({{"--output", kLeaveOut}}, 2, "pretrain needs --output");
  pretrain_refused({{"--init-file", file("text.txt")}}, 3, "text.txt");
}

// The start of an earlier run is not taken for this one's.
TEST_F(Pretrain, AStartThatIsThereAlready) {
  const Options one = {{"--output", file("out")}, {"--seed", "1"}};
  const std::string first = pretrained(one);
  fs::remove_all(file("out"));
  const std::string start = file_bytes(file("out.init.safetensors"));
  pretrain_refused({{"--seed", "2"}}, 2, "out.init.safetensors is the start of an earlier run");
  EXPECT_TRUE(file_bytes(file("out.init.safetensors")) == start);
  const std::string second =
      pretrained({{"--output", file("out")}, {"--seed", "2"}, {"--force", "true"}});
  EXPECT_FALSE(file_bytes(file("out.init.safetensors")) == start);
  EXPECT_TRUE(second == pretrained({{"--seed", "2"}}));
  // An output that exists is refused before anything is made.
  pretrain_refused({{"--output", file("out")}, {"--init-file", file("new.safetensors")}}, 2,
                   "is not empty");
  EXPECT_FALSE(fs::exists(file("new.safetensors")));
}

TEST_F(Pretrain, Resume) {
  const Options common = {{"--output", file("out")}, {"--checkpoint-dir", file("saved")}};
  Options begin = common;
  begin["--save-every-steps"] = "3";
  begin["--steps"] = "3";
  EXPECT_EQ(cli(pretrain_arguments(begin)).code, 0);
  Options go_on = common;
  go_on["--steps"] = "6";
  go_on["--resume"] = "true";
  go_on["--force"] = "true";
  const std::string resumed = pretrained(go_on);
  EXPECT_EQ(last_metrics()[3]["step"], 4);
  EXPECT_TRUE(resumed == pretrained({{"--steps", "6"}}));
}

TEST_F(Pretrain, TokenizerElsewhere) {
  fs::create_directories(file("c"));
  fs::copy(shared_->file("m/config.json"), file("c/config.json"));
  const Options bare = {{"--config", file("c/config.json")}};
  pretrain_refused(bare, 3, "no tokenizer.json");
  fs::remove(file("out.init.safetensors"));
  Options given = bare;
  given["--tokenizer"] = shared_->file("m/tokenizer.json");
  EXPECT_TRUE(pretrained(given) == pretrained({}));
  EXPECT_TRUE(fs::exists(file("out1/tokenizer.json")));
}

TEST_F(Pretrain, MistakesAreAnswered) {
  pretrain_refused({{"--config", kLeaveOut}}, 2, "--config is missing");
  pretrain_refused({{"--model", model()}}, 2, "--model");
  pretrain_refused({{"--template", "qwen3"}}, 2, "--template: not an option of 'pretrain'");
  pretrain_refused({{"--end-token", "false"}}, 2, "--end-token");
  pretrain_refused({{"--train-data", write("empty.txt", "\n\n")}}, 3, "nothing to learn from");
  EXPECT_FALSE(fs::exists(file("out")));
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// nibble check: sound models pass, damaged ones fail and the place is named, every option shows.
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <regex>

#include "support/cli.h"
#include "support/damage.h"
#include "support/golden.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int64_t count(const std::string& text, const std::string& part) {
  int64_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

class Check : public testing::Test {
 protected:
  CliResult check(const std::string& model, std::vector<std::string> more) {
    std::vector<std::string> args = {"check", "--model", model, "--threads", "1"};
    args.insert(args.end(), more.begin(), more.end());
    return cli(args);
  }
  std::string golden(const std::string& model) const { return (golden_dir() / model).string(); }
  // A copy that may be damaged.
  fs::path copy_of(const std::string& model) {
    const fs::path to = dir_.path() / ("copy-" + model);
    copy_model(golden_dir() / model, to);
    return to;
  }
  std::string toy() {
    write_toy_directory(dir_.path() / "toy");
    return dir_.file("toy");
  }
  TemporaryDirectory dir_{"check"};
};

TEST_F(Check, QuickSetPassesOnSoundModels) {
  for (const std::string model : {"qwen3_untied", "predecessor"}) {
    const CliResult r = check(golden(model), {"--iterations", "1"});
    EXPECT_EQ(r.code, 0) << r.out << r.err;
    for (const char* name : {"PASS finite:", "PASS kv:", "PASS paths:"}) {
      EXPECT_EQ(count(r.out, name), 1) << name << "\n" << r.out;
    }
    EXPECT_EQ(count(r.out, "FAIL"), 0) << r.out;
    EXPECT_EQ(count(r.out, "needle"), 0);
  }
}

TEST_F(Check, FlagsChooseTheChecks) {
  const CliResult r = check(golden("qwen3_untied"), {"--finite"});
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(count(r.out, "PASS"), 1) << r.out;
  const CliResult alias = check(golden("qwen3_untied"), {"--check-logits"});
  EXPECT_EQ(alias.out, r.out);
}

TEST_F(Check, NanInANormIsNamed) {
  const fs::path model = copy_of("qwen3_untied");
  poke_tensor<float>(model, "model.layers.1.input_layernorm.weight", 5, {kNan});
  const CliResult r = check(model.string(), {"--finite"});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "FAIL finite:")) << r.out;
  EXPECT_TRUE(contains(r.out, "model.layers.1.input_layernorm.weight")) << r.out;
  EXPECT_TRUE(contains(r.out, "element 5")) << r.out;
}

TEST_F(Check, AnOverflowInTheRunIsNamed) {
  // Every weight is finite, the product is not.
  const fs::path model = copy_of("qwen3_untied");
  poke_tensor<float>(model, "model.layers.2.post_attention_layernorm.weight", 0,
                     std::vector<float>(64, 3e38f));
  const CliResult r = check(model.string(), {"--finite"});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "the first intermediate that is not finite is layers.2.ffn_"))
      << r.out;
}

TEST_F(Check, DamagedScalesAreNamed) {
  const std::string name = "model.layers.1.mlp.up_proj.weight.scale";
  const struct {
    uint8_t byte;
    const char* message;
  } cases[] = {{0x7f, "1 of 640 scales are NaN"},
               {0x9c, "1 negative"},
               {0x7e, "1 over 4096 times the median"}};
  for (const auto& c : cases) {
    const fs::path model = copy_of("predecessor");
    poke_tensor<uint8_t>(model / "model-nvfp4.dat", name, 41, {c.byte});
    const CliResult r = check(model.string(), {"--finite"});
    EXPECT_EQ(r.code, 1) << r.err;
    EXPECT_TRUE(contains(r.out, "FAIL finite:")) << r.out;
    EXPECT_TRUE(contains(r.out, name)) << r.out;
    EXPECT_TRUE(contains(r.out, c.message)) << r.out;
    EXPECT_TRUE(contains(r.out, "row 10, block 1")) << r.out;
  }
}

TEST_F(Check, ACollapsedReplyFails) {
  // A head of zeros: every logit is equal and greedy takes token 0.
  const fs::path model = copy_of("qwen3_untied");
  const int64_t n = open_tensor_source(model)->at("lm_head.weight").numel();
  poke_tensor<float>(model, "lm_head.weight", 0, std::vector<float>(size_t(n), 0.0f));
  const CliResult r = check(model.string(), {"--finite"});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "collapsed: token 0")) << r.out;
  const CliResult replies = check(model.string(), {"--replies"});
  EXPECT_EQ(replies.code, 1);
  EXPECT_TRUE(contains(replies.out, "FAIL replies:")) << replies.out;
}

TEST_F(Check, KvOptions) {
  const std::string model = golden("predecessor");
  const CliResult r = check(model, {"--kv", "--iterations", "2", "--kv-chunks", "2,5",
                                    "--max-tokens", "3", "--max-logit-diff", "0.25"});
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_TRUE(contains(r.out, "[chunk-2][1] 6 ids equal")) << r.out;
  EXPECT_TRUE(contains(r.out, "[persistent-chunk-5][2]")) << r.out;
  EXPECT_FALSE(contains(r.out, "chunk-3")) << r.out;
  EXPECT_TRUE(contains(r.out, "cases=10 iterations=2 total=20 failed=0")) << r.out;
  EXPECT_TRUE(contains(r.out, "allowed 0.25")) << r.out;
  EXPECT_EQ(check(model, {"--kv", "--kv-chunks", "0"}).code, 2);
}

TEST_F(Check, PathsOptions) {
  const std::string model = golden("predecessor");
  const CliResult r = check(model, {"--paths"});
  EXPECT_EQ(r.code, 0) << r.out;
  for (const char* path : {"[cache]", "[training]", "[bf16]", "[fp8-cache]", "[int8]", "[nvfp4]"}) {
    EXPECT_EQ(count(r.out, path), 1) << r.out;
  }
  const CliResult strict = check(model, {"--paths", "--max-rel", "1e-9"});
  EXPECT_EQ(strict.code, 1);
  EXPECT_TRUE(contains(strict.out, "FAIL layers.0.out is the first over")) << strict.out;
  EXPECT_TRUE(contains(strict.out, "first over its limit: bf16: layers.0.out")) << strict.out;
  const CliResult cosine = check(model, {"--paths", "--min-cosine", "1"});
  EXPECT_EQ(cosine.code, 1);
  EXPECT_TRUE(contains(check(golden("qwen3_tied"), {"--paths"}).out, "[int8] not run"));
}

TEST_F(Check, PathsSeeADifferenceThatMatters) {
  // The prompt decides what is compared: ids outside the vocabulary are refused, others are used.
  const std::string model = golden("qwen3_tied");
  EXPECT_EQ(check(model, {"--paths", "--input-ids", "1,2,384"}).code, 2);
  EXPECT_TRUE(contains(check(model, {"--paths", "--input-ids", "1,2,3"}).out, "on 3 tokens"));
}

TEST_F(Check, RepliesArePrintedAsBefore) {
  const std::string model = toy();
  const CliResult r = check(model, {"--replies", "--max-tokens", "6"});
  EXPECT_TRUE(std::regex_search(r.out, std::regex("Prompt: 你是誰\nReply: [^]*?\n---\n"
                                                  "Prompt: 談談UFO\nReply: [^]*?\n---\n"
                                                  "Prompt: 我是誰\nReply: [^]*?\n---\n")))
      << r.out;
  const CliResult other = check(model, {"--replies", "--max-tokens", "6", "--prompt", "hello"});
  EXPECT_TRUE(contains(other.out, "Prompt: hello\n")) << other.out;
  EXPECT_FALSE(contains(other.out, "你是誰"));
  const CliResult ids = check(model, {"--replies", "--max-tokens", "6", "--input-ids", "5,6"});
  EXPECT_TRUE(contains(ids.out, "Prompt: 5,6\n")) << ids.out;
}

TEST_F(Check, SamplingOptionsReachTheReplies) {
  const std::string model = golden("qwen3_untied");
  const auto replies = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--replies", "--max-tokens", "12", "--input-ids", "3,1,4"});
    return check(model, more).out;
  };
  const std::string greedy = replies({});
  const std::string drawn = replies({"--temp", "1.5", "--seed", "7"});
  EXPECT_NE(greedy, drawn);
  EXPECT_EQ(drawn, replies({"--temp", "1.5", "--seed", "7"}));
  // The other two prompts are random ids of the seed: compare the first reply alone.
  const auto first = [](const std::string& s) { return s.substr(0, s.find("---")); };
  EXPECT_NE(first(drawn), first(replies({"--temp", "1.5", "--seed", "8"})));
  EXPECT_EQ(first(greedy), first(replies({"--temp", "1.5", "--seed", "7", "--top-p", "1e-6"})));
  EXPECT_EQ(greedy, replies({"--use-kvc", "false"}));
  EXPECT_EQ(greedy, replies({"--prefill", "token"}));
  EXPECT_EQ(check(model, {"--replies", "--top-p", "0"}).code, 2);
}

TEST_F(Check, NeedleFailsHonestlyOnARandomModel) {
  const std::string model = toy();
  const std::vector<std::string> base = {"--needle", "--target-tokens", "300", "--chunk-size",
                                         "90",       "--max-tokens",    "8",   "--context",
                                         "500"};
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> args = base;
    args.insert(args.end(), more.begin(), more.end());
    return check(model, args);
  };
  const CliResult r = run({});
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(contains(r.out, "FAIL needle: 'GEMINI-CODE-7788' not found after 3")) << r.out;
  EXPECT_TRUE(contains(r.out, "cache persistent")) << r.out;
  const CliResult rebuilt = run({"--needle-mode", "rebuild"});
  EXPECT_TRUE(contains(rebuilt.out, "cache rebuilt")) << rebuilt.out;
  // The same conversation, whichever way the cache is used.
  EXPECT_EQ(r.out.substr(0, r.out.find("\n")), rebuilt.out.substr(0, rebuilt.out.find("\n")));
  EXPECT_TRUE(contains(run({"--secret", "SESAME"}).out, "'SESAME' not found"));
  replace_file(dir_.path() / "hay.txt", "SESAME is planted here\n");
  EXPECT_EQ(run({"--secret", "SESAME", "--haystack", dir_.file("hay.txt")}).code, 2);
  EXPECT_EQ(run({"--haystack", dir_.file("none.txt")}).code, 3);
}

TEST_F(Check, NeedleSizes) {
  const std::string model = toy();
  const auto chunks = [&](const std::string& target, const std::string& chunk) {
    const CliResult r = check(model, {"--needle", "--target-tokens", target, "--chunk-size", chunk,
                                      "--max-tokens", "4", "--context", "500"});
    std::smatch m;
    EXPECT_TRUE(std::regex_search(r.out, m, std::regex("after (\\d+) tokens in (\\d+) chunks")))
        << r.out << r.err;
    return std::pair(std::stoi(m[1]), std::stoi(m[2]));
  };
  const auto coarse = chunks("320", "200"), fine = chunks("320", "60"), brief = chunks("150", "60");
  EXPECT_GE(coarse.first, 320);
  EXPECT_GT(fine.second, coarse.second);
  EXPECT_LT(brief.first, fine.first);
  const CliResult r = check(model, {"--needle", "--target-tokens", "5000"});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "512 positions")) << r.out << r.err;
}

TEST_F(Check, NeedleNeedsATokenizer) {
  const CliResult r = check(golden("qwen3_tied"), {"--needle"});
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(contains(r.err, "tokenizer.json")) << r.err;
}

TEST_F(Check, JsonHoldsEveryVerdict) {
  const std::string file = dir_.file("r.json");
  const CliResult r =
      check(golden("predecessor"), {"--iterations", "1", "--max-rel", "1e-9", "--json", file});
  EXPECT_EQ(r.code, 1);
  const auto j = nlohmann::json::parse(read_text_file(file));
  EXPECT_EQ(j.at("passed"), false);
  ASSERT_EQ(j.at("checks").size(), 3u);
  EXPECT_EQ(j["checks"][0]["check"], "finite");
  EXPECT_EQ(j["checks"][0]["passed"], true);
  EXPECT_EQ(j["checks"][1]["cases"].size(), 10u);
  EXPECT_EQ(j["checks"][2]["passed"], false);
  EXPECT_EQ(j["checks"][2]["paths"][0]["layers"].size(), 3u);  // two layers and the logits
  EXPECT_TRUE(contains(j.at("backend"), "cpu"));

  const fs::path broken = copy_of("predecessor");
  poke_tensor<uint8_t>(broken / "model-nvfp4.dat", "lm_head.weight.scale", 0, {0x7f});
  EXPECT_EQ(check(broken.string(), {"--finite", "--json", file, "--force"}).code, 1);
  EXPECT_TRUE(contains(nlohmann::json::parse(read_text_file(file))["checks"][0]["place"],
                       "lm_head.weight.scale"));
}

TEST(CheckFlags, NeedleOptionsNeedTheNeedle) {
  for (const char* flag : {"--secret", "--target-tokens", "--chunk-size", "--haystack"}) {
    const CliResult r = cli({"check", "--model", "m", "--finite", flag, "1"});
    EXPECT_EQ(r.code, 2);
    EXPECT_TRUE(contains(r.err, std::string(flag) + " has no effect without --needle")) << r.err;
  }
  EXPECT_EQ(cli({"trace", "--model", "m", "--input-ids", "1", "--tolerance", "1"}).code, 2);
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// nibble bench: what it measures is there; no speed is asserted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "support/cli.h"
#include "support/golden.h"
#include "support/paths.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

class Bench : public testing::Test {
 protected:
  CliResult bench(const std::string& model, std::vector<std::string> more) {
    std::vector<std::string> args = {"bench",     "--model", model,          "--repeat", "2",
                                     "--threads", "1",       "--buffer-mib", "8"};
    args.insert(args.end(), more.begin(), more.end());
    return cli(args);
  }
  std::string golden(const std::string& model) const { return (golden_dir() / model).string(); }
  nlohmann::json read(const std::string& name) const {
    return nlohmann::json::parse(read_text_file(dir_.path() / name));
  }
  TemporaryDirectory dir_{"bench"};
};

TEST_F(Bench, TableAndJson) {
  const CliResult r = bench(
      golden("predecessor"),
      {"--prompt-tokens", "4,9", "--tokens", "3", "--warmup", "0", "--json", dir_.file("b.json")});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "of read")) << r.out;
  EXPECT_TRUE(contains(r.out, "peak memory")) << r.out;
  const auto j = read("b.json");
  ASSERT_EQ(j.at("rows").size(), 4u);
  const char* phases[] = {"prefill", "decode", "prefill", "decode"};
  const int tokens[] = {4, 3, 9, 3}, context[] = {0, 4, 0, 9};
  for (size_t i = 0; i < 4; ++i) {
    const auto& row = j["rows"][i];
    EXPECT_EQ(row.at("phase"), phases[i]);
    EXPECT_EQ(row.at("tokens"), tokens[i]);
    EXPECT_EQ(row.at("context"), context[i]);
    EXPECT_EQ(row.at("samples_tok_s").size(), 2u);
    EXPECT_LE(row.at("p10_tok_s"), row.at("median_tok_s"));
    EXPECT_LE(row.at("median_tok_s"), row.at("p90_tok_s"));
    EXPECT_GT(row.at("share_of_read"), 0);
    EXPECT_GT(row.at("share_of_fma"), 0);
  }
  EXPECT_EQ(j.at("threads"), 1);
  EXPECT_EQ(j.at("warmup"), 0);
  EXPECT_EQ(j.at("buffer_bytes"), 8 << 20);
  EXPECT_EQ(j.at("activations"), "int8");
  EXPECT_GT(j.at("load_s"), 0);
  EXPECT_GT(j.at("peak_bytes"), 0);
  EXPECT_FALSE(j.contains("tokenizer"));
}

TEST_F(Bench, PhaseAndBrief) {
  const CliResult decode = bench(golden("qwen3_tied"), {"--prompt-tokens", "4", "--phase", "decode",
                                                        "--json", dir_.file("b.json")});
  EXPECT_EQ(decode.code, 0) << decode.err;
  EXPECT_EQ(read("b.json").at("rows").size(), 1u);
  EXPECT_EQ(read("b.json")["rows"][0]["phase"], "decode");
  EXPECT_EQ(read("b.json")["rows"][0]["tokens"], 32);
  for (const char* phase : {"prefill", "decode"}) {
    const CliResult r =
        bench(golden("qwen3_tied"), {"--prompt-tokens", "4", "--phase", phase, "--brief"});
    EXPECT_EQ(r.code, 0) << r.err;
    size_t end = 0;
    EXPECT_GT(std::stod(r.out, &end), 0);
    EXPECT_EQ(r.out.substr(end), "\n");
  }
}

TEST_F(Bench, SeveralSequencesAtOnce) {
  const CliResult r = bench(
      golden("predecessor"),
      {"--prompt-tokens", "4", "--tokens", "3", "--batch", "2,5", "--json", dir_.file("b.json")});
  EXPECT_EQ(r.code, 0) << r.err;
  const auto rows = read("b.json").at("rows");
  ASSERT_EQ(rows.size(), 3u);
  const char* phases[] = {"prefill", "decode", "decode"};
  const int batches[] = {1, 2, 5};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows[i].at("phase"), phases[i]);
    EXPECT_EQ(rows[i].at("batch"), batches[i]);
    EXPECT_GT(rows[i].at("median_tok_s"), 0);
  }
  EXPECT_DOUBLE_EQ(rows[2].at("flops_per_pass"),
                   rows[1].at("flops_per_pass").get<double>() / 2 * 5);
  EXPECT_EQ(bench(golden("predecessor"), {"--batch", "0"}).code, 2);
  EXPECT_EQ(bench(golden("predecessor"),
                  {"--brief", "--phase", "decode", "--prompt-tokens", "4", "--batch", "1,2"})
                .code,
            2);
}

TEST_F(Bench, RandomWeightsNeedNoFile) {
  const std::string config = (golden_dir() / "qwen3_tied" / "config.json").string();
  const std::vector<std::string> args = {"bench",           "--random-weights",
                                         "--config",        config,
                                         "--repeat",        "1",
                                         "--warmup",        "0",
                                         "--prompt-tokens", "4",
                                         "--tokens",        "2",
                                         "--buffer-mib",    "8",
                                         "--threads",       "2",
                                         "--device",        "cpu",
                                         "--json",          dir_.file("b.json")};
  const CliResult r = cli(args);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.out.starts_with("random weights: linear layers nvfp4, head nvfp4, embedding bf16"))
      << r.out;
  EXPECT_EQ(read("b.json").at("model"), "random weights");
  EXPECT_EQ(read("b.json").at("activations"), "int8");
  EXPECT_FALSE(read("b.json").contains("device_memory"));

  EXPECT_EQ(cli({"bench", "--random-weights"}).code, 2);
  EXPECT_EQ(bench(golden("qwen3_tied"), {"--random-weights", "--config", config}).code, 2);
  EXPECT_EQ(cli({"bench", "--random-weights", "--config", dir_.file("none.json")}).code, 3);
}

TEST_F(Bench, TokenizerFigures) {
  write_toy_directory(dir_.path() / "toy");
  replace_file(dir_.path() / "text.txt", "hello hello world\n");
  const CliResult r =
      bench(dir_.file("toy"), {"--prompt-tokens", "4", "--tokens", "2", "--tokenizer-file",
                               dir_.file("text.txt"), "--json", dir_.file("b.json")});
  EXPECT_EQ(r.code, 0) << r.err;
  const auto t = read("b.json").at("tokenizer");
  EXPECT_GT(t.at("load_s"), 0);
  EXPECT_GT(t.at("encode_mb_s"), 0);
  EXPECT_EQ(t.at("text_bytes"), 18);
  EXPECT_TRUE(contains(r.out, "MB/s")) << r.out;
  EXPECT_EQ(bench(golden("qwen3_tied"), {"--tokenizer-file", dir_.file("text.txt")}).code, 2);
}

TEST_F(Bench, MistakesAreAnswered) {
  const std::string model = golden("qwen3_tied");
  EXPECT_EQ(bench(model, {"--brief", "--prompt-tokens", "4"}).code, 2);
  EXPECT_EQ(bench(model, {"--brief", "--phase", "decode"}).code, 2);  // two lengths by default
  EXPECT_EQ(bench(model, {"--brief", "--phase", "decode", "--prompt-tokens", "4", "--json",
                          dir_.file("x.json")})
                .code,
            2);
  EXPECT_EQ(bench(model, {"--prompt-tokens", "0"}).code, 2);
  EXPECT_EQ(bench(model, {"--tokens", "0"}).code, 2);
  EXPECT_EQ(bench(model, {"--use-kvc", "false"}).code, 2);
  const CliResult full = bench(model, {"--prompt-tokens", "8", "--context", "9"});
  EXPECT_EQ(full.code, 2);
  EXPECT_TRUE(contains(full.err, "context")) << full.err;
  EXPECT_EQ(bench(model, {"--prompt-tokens", "5000"}).code, 2);  // the model knows 4096 positions
}

// bench/compare_llamacpp.sh with programs that only print figures.
TEST_F(Bench, ComparisonScriptPrintsMediansAndRatios) {
  const auto script = [&](const std::string& name, const std::string& body) {
    replace_file(dir_.path() / name, "#!/bin/sh\n" + body);
    std::filesystem::permissions(dir_.path() / name, std::filesystem::perms::owner_all);
    return dir_.file(name);
  };
  const std::string nibble =
      script("nibble", "case \"$*\" in *prefill*) echo 90;; *) echo 41;; esac\n");
  const std::string llama = script(
      "llama",
      "case \"$*\" in *'-n 0'*) echo '\"avg_ts\": 60.0,';; *) echo '\"avg_ts\": 20.5';; esac\n");
  const std::string out = dir_.file("out.txt");
  const std::string command = std::string(kSourceDir) + "/bench/compare_llamacpp.sh " + nibble +
                              " " + dir_.file("") + " " + llama + " " + dir_.file("") +
                              " 2 1 128 16 >" + out + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string text = read_text_file(out);
  EXPECT_TRUE(contains(text, "prefill 128       90.00      60.00     1.50")) << text;
  EXPECT_TRUE(contains(text, "decode 16         41.00      20.50     2.00")) << text;
}

}  // namespace
}  // namespace nibble::test

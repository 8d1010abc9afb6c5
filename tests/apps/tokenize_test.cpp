// SPDX-License-Identifier: MIT
// nibble tokenize, option by option.
#include "apps/cli_run.h"
#include "support/shared_data.h"

namespace nibble::test {
namespace {

class Tokenize : public testing::Test {
 protected:
  void SetUp() override { replace_file(tokenizer_, mini_tokenizer_text()); }
  std::vector<std::string> with(std::vector<std::string> more) {
    more.insert(more.begin(), {"tokenize", "--tokenizer", tokenizer_});
    return more;
  }
  TemporaryDirectory dir_{"tokenize"};
  std::string tokenizer_ = dir_.file("tokenizer.json");
};

// In the mini tokenizer bytes are their own ids, "hello" is 259 and <|im_end|> 265.
TEST_F(Tokenize, TextFileAndStandardInput) {
  EXPECT_EQ(cli_ok(with({"--text", "hello!"})), "259,33\n");
  replace_file(dir_.file("t.txt"), "hello!\n");
  EXPECT_EQ(cli_ok(with({"--file", dir_.file("t.txt")})), "259,33,10\n");
  EXPECT_EQ(cli_ok(with({}), "hello!"), "259,33\n");
  EXPECT_EQ(cli_ok(with({"--text="})), "\n");
}

TEST_F(Tokenize, SpecialStringsAreTokensUnlessPlain) {
  EXPECT_EQ(cli_ok(with({"--text", "<|im_end|>"})), "265\n");
  EXPECT_EQ(cli_ok(with({"--text", "<|im_end|>", "--plain"})),
            "60,124,105,109,95,101,110,100,124,62\n");
}

TEST_F(Tokenize, Decode) {
  EXPECT_EQ(cli_ok(with({"--decode", "259,33,265"})), "hello!<|im_end|>\n");
  cli_fails(with({"--decode", "259,100000"}), 2, "no token 100000");
  cli_fails(with({"--decode", "-1"}), 2, "no token -1");
}

TEST_F(Tokenize, JsonLines) {
  replace_file(dir_.file("in.jsonl"),
               "{\"text\": \"hello\"}\n\n{\"text\": \"\\u4f60<|im_end|>\"}\n");
  const std::string expected =
      "{\"decoded\":\"hello\",\"ids\":[259]}\n"
      "{\"decoded\":\"你<|im_end|>\",\"ids\":[262,265]}\n";
  EXPECT_EQ(cli_ok(with({"--jsonl", dir_.file("in.jsonl")})), expected);
  EXPECT_EQ(cli_ok(with({"--jsonl", dir_.file("in.jsonl"), "--out", dir_.file("out.jsonl")})), "");
  EXPECT_EQ(read_text_file(dir_.file("out.jsonl")), expected);
  cli_fails(with({"--text", "x", "--out", dir_.file("out.jsonl")}), 2, "exists");
  cli_ok(with({"--text", "x", "--out", dir_.file("out.jsonl"), "--force"}));
  EXPECT_EQ(read_text_file(dir_.file("out.jsonl")), "120\n");
}

TEST_F(Tokenize, BadLinesAreNamed) {
  replace_file(dir_.file("bad.jsonl"), "{\"text\": \"a\"}\n{\"txt\": 1}\n");
  const CliResult r = cli(with({"--jsonl", dir_.file("bad.jsonl"), "--out", dir_.file("o")}));
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(contains(r.err, "bad.jsonl:2")) << r.err;
  EXPECT_FALSE(std::filesystem::exists(dir_.file("o")));
  replace_file(dir_.file("bad.jsonl"), "{\n");
  cli_fails(with({"--jsonl", dir_.file("bad.jsonl")}), 3, "not valid JSON");
}

TEST_F(Tokenize, ModelsNameTheirTokenizer) {
  replace_file(dir_.file("w.dat"), "x");
  EXPECT_EQ(cli_ok({"tokenize", "--model", dir_.file("w.dat"), "--text", "hello"}), "259\n");
  EXPECT_EQ(cli_ok({"tokenize", "--weight", dir_.path().string(), "--text", "hello"}), "259\n");
}

TEST_F(Tokenize, Mistakes) {
  cli_fails({"tokenize", "--text", "x"}, 2, "no tokenizer given");
  cli_fails(with({"--text", "x", "--decode", "1"}), 2, "exclude each other");
  cli_fails(with({"--plain", "--decode", "1"}), 2, "--plain");
  cli_fails(with({"--text", "x", "--force"}), 2, "--force");
  cli_fails(with({"--file", dir_.file("none")}), 3, "none");
  cli_fails(with({"--file", tokenizer_, "--out", tokenizer_, "--force"}), 2, "is an input");
  cli_fails({"tokenize", "--tokenizer", dir_.file("none.json"), "--text", "x"}, 3, "none.json");
  replace_file(dir_.file("bad.json"), "{}");
  cli_fails({"tokenize", "--tokenizer", dir_.file("bad.json"), "--text", "x"}, 3, "bad.json");
}

TEST(OutputFiles, NoCommandReplacesItsInput) {
  namespace fs = std::filesystem;
  const TemporaryDirectory dir("inputs");
  const std::string model = dir.file("m"), ids = "--input-ids";
  write_toy_directory(model);
  replace_file(dir.file("text"), "hello");
  replace_file(dir.file("m/generation_config.json"), "{}");
  fs::create_symlink(model + "/config.json", dir.file("link"));
  for (const std::string& file :
       {model + "/config.json", model + "/tokenizer.json", model + "/model.safetensors",
        model + "/generation_config.json", dir.file("link"), dir.file("text")}) {
    const std::string before = file_bytes(file);
    const bool text = file == dir.file("text");
    if (!text) cli_fails({"trace", "--model", model, ids, "1", "--out", file}, 2, file);
    cli_fails(
        {"check", "--model", model, "--needle", "--haystack", dir.file("text"), "--json", file}, 2,
        "is an input");
    cli_fails({"bench", "--model", model, "--tokenizer-file", dir.file("text"), "--json", file}, 2,
              "is an input");
    cli_fails({"tokenize", "--model", model, "--file", dir.file("text"), "--out", file, "--force"},
              2, "is an input");
    EXPECT_EQ(file_bytes(file), before);
  }
  // Shards may have any name.
  fs::rename(model + "/model.safetensors", model + "/part.safetensors");
  replace_file(model + "/model.safetensors.index.json",
               R"({"weight_map": {"model.norm.weight": "part.safetensors"}})");
  for (const std::string name : {"part.safetensors", "model.safetensors.index.json"}) {
    cli_fails({"trace", "--model", model, ids, "1", "--out", model + "/" + name}, 2, "is an input");
  }
}

TEST(TokenizeQwen3, TheRealFile) {
  NIBBLE_SHARED_FILE_OR_SKIP(path, "qwen3/tokenizer.json");
  EXPECT_EQ(cli_ok({"tokenize", "--tokenizer", path.string(), "--text", "Hello<|im_end|>"}),
            "9707,151645\n");
}

}  // namespace
}  // namespace nibble::test

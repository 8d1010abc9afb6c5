// SPDX-License-Identifier: MIT
// nibble generate: every option changes something one can see, every mistake is answered.
#include <gtest/gtest.h>

#include "apps/cli_run.h"
#include "support/cli.h"
#include "support/golden.h"
#include "support/toy_dir.h"
#include "tokenizer/tokenizer.h"

namespace nibble::test {
namespace {

class GenerateCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TemporaryDirectory("generate");
    write_toy_directory(dir_->path() / "m");
  }
  static void TearDownTestSuite() { delete dir_; }
  static std::string model() { return dir_->file("m"); }

  CliResult run(std::vector<std::string> args, const std::string& input = "") {
    args.insert(args.begin(), {"generate", "--model", model(), "--max-tokens", "12"});
    return cli(args, input);
  }
  // The ids of the last line.
  static std::string ids(const CliResult& r) {
    EXPECT_EQ(r.code, 0) << r.err;
    const std::string text = r.out.substr(0, r.out.size() - 1);
    return text.substr(text.rfind('\n') + 1);
  }
  std::string ids_with(std::vector<std::string> args) {
    args.insert(args.end(), {"--prompt", "hello", "--print-ids"});
    return ids(run(args));
  }
  static TemporaryDirectory* dir_;
};
TemporaryDirectory* GenerateCommand::dir_ = nullptr;

TEST_F(GenerateCommand, GoldenIdsThroughTheCommandLine) {
  for (const std::string name : {"qwen3_tied", "qwen3_untied", "qwen3_tied_nvfp4"}) {
    const auto dir = golden_dir() / name;
    const auto expected = open_tensor_source(dir / "expected.safetensors");
    const auto greedy = read_all<int64_t>(*expected, "greedy");
    std::string prompt, want;
    for (size_t i = 0; i < 8; ++i) prompt += (i ? "," : "") + std::to_string(greedy[i]);
    for (size_t i = 8; i < greedy.size(); ++i)
      want += (i > 8 ? "," : "") + std::to_string(greedy[i]);
    const auto r =
        cli({"generate", "--model", dir.string(), "--input-ids", prompt, "--max-tokens",
             std::to_string(greedy.size() - 8), "--temp", "0", "--ignore-eos", "--print-ids"});
    EXPECT_EQ(ids(r), want) << name;
  }
}

TEST_F(GenerateCommand, PromptSourcesAgree) {
  replace_file(dir_->file("prompt.txt"), "hello");
  const std::string want = ids_with({});
  EXPECT_EQ(ids(run({"--prompt-file", dir_->file("prompt.txt"), "--print-ids"})), want);
  EXPECT_EQ(ids(run({"--print-ids"}, "hello")), want);  // standard input
  const Tokenizer t = Tokenizer::load(dir_->path() / "m" / "tokenizer.json");
  const auto prompt = t.encode("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
  std::string list;
  for (int32_t id : prompt) list += (list.empty() ? "" : ",") + std::to_string(id);
  EXPECT_EQ(ids(run({"--input-ids", list, "--print-ids"})), want);
}

TEST_F(GenerateCommand, PromptOptionsChangeThePrompt) {
  const auto echo = [&](std::vector<std::string> args) {
    args.insert(args.end(), {"--prompt", "hi<|im_end|>", "--echo", "--max-tokens", "1"});
    std::vector<std::string> all = {"generate", "--model", model()};
    all.insert(all.end(), args.begin(), args.end());
    return cli(all).out;
  };
  EXPECT_EQ(echo({}).find("<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n"), 0u);
  EXPECT_EQ(echo({"--raw"}).find("hi<|im_end|>"), 0u);
  EXPECT_EQ(echo({"--system", "be brief"}).find("<|im_start|>system\nbe brief<|im_end|>\n"), 0u);
  EXPECT_TRUE(contains(echo({"--template", "predecessor"}), "hi<|im_end|>\n<|im_end|>"));
  const std::string jinja = dir_->file("t.jinja");
  replace_file(jinja, "[{{ messages[0].content }}|{{ enable_thinking }}|{{ tools }}]");
  EXPECT_EQ(echo({"--template", jinja}).find("[hi<|im_end|>||None]"), 0u);
  const std::string tools = dir_->file("tools.json");
  replace_file(tools, "{\"name\": \"f\"}");
  EXPECT_EQ(echo({"--template", jinja, "--thinking", "off", "--tools", tools})
                .find("[hi<|im_end|>|False|[{'name': 'f'}]]"),
            0u);
  // What becomes of the injected end shows in the number of ids, not in the text.
  const auto count = [&](const std::string& flag) {
    const auto r = cli({"generate", "--model", model(), "--prompt", "<|im_end|>", "--max-tokens",
                        "1", "--timing", flag});
    return r.out.substr(r.out.find("ms (") + 4, 2);
  };
  EXPECT_NE(count("--parse-content"), count("--parse-content=false"));
  EXPECT_EQ(cli({"generate", "--model", model(), "--prompt", "x", "--plain"}).code, 2);
}

TEST_F(GenerateCommand, SamplingOptionsChangeTheReply) {
  const std::string greedy = ids_with({});
  EXPECT_EQ(ids_with({"--temp", "0"}), greedy);
  const std::string hot = ids_with({"--temp", "3"});
  EXPECT_NE(hot, greedy);
  EXPECT_EQ(ids_with({"--temperature", "3"}), hot);
  EXPECT_NE(ids_with({"--temp", "3", "--seed", "18446744073709551615"}), hot);
  EXPECT_EQ(ids_with({"--temp", "3", "--top-k", "1"}), greedy);
  EXPECT_EQ(ids_with({"--temp", "3", "--top-p", "0.000001"}), greedy);
  EXPECT_EQ(ids_with({"--temp", "3", "--topp=0.000001"}), greedy);
  EXPECT_EQ(ids_with({"--temp", "3", "--min-p", "1"}), greedy);
  EXPECT_NE(ids_with({"--repetition-penalty", "5"}), greedy);
}

TEST_F(GenerateCommand, LengthAndStopOptions) {
  const std::string greedy = ids_with({});
  EXPECT_EQ(std::count(greedy.begin(), greedy.end(), ','), 11);
  // A config whose end token is the first one generated stops at once, unless told otherwise.
  Config c = toy_chat_config();
  c.eos_ids = {std::stoi(greedy)};
  TemporaryDirectory other("eos");
  write_toy_directory(other.path(), c);
  const auto stopped =
      cli({"generate", "--model", other.path().string(), "--prompt", "hello", "--print-ids"});
  EXPECT_EQ(stopped.out, "\n\n");
  const auto on = cli({"generate", "--model", other.path().string(), "--prompt", "hello",
                       "--print-ids", "--ignore-eos", "--max-tokens", "12"});
  EXPECT_EQ(ids(on), greedy);
  const auto timeout =
      run({"--prompt", "hello", "--print-ids", "--timeout-ms", "1", "--use-kvc", "false"});
  EXPECT_LT(ids(timeout).size(), greedy.size());
}

TEST_F(GenerateCommand, CacheOptionsDoNotChangeTheReply) {
  const std::vector<std::string> fp32 = {"--kv-dtype", "fp32"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), fp32.begin(), fp32.end());
    return ids_with(more);
  };
  const std::string want = with({});
  for (const std::vector<std::string>& mode :
       std::vector<std::vector<std::string>>{{"--prefill", "whole"},
                                             {"--prefill", "token"},
                                             {"--prefill", "chunked", "--chunk", "3"},
                                             {"--use-kvc", "false"},
                                             {"--kvc-input-mode", "tbt"},
                                             {"--TokenByTokenOrPromptByPrompt=pbp"},
                                             {"--KVCacheOut", "false"},
                                             {"--context", "64"},
                                             {"--threads", "1"},
                                             {"--threads", "3"},
                                             {"--device", "cpu"}}) {
    EXPECT_EQ(with(mode), want) << mode[0];
  }
}

TEST_F(GenerateCommand, PrecisionOptionsChangeTheArithmetic) {
  // Logits differ in every mode; the toy's are close enough that some greedy reply differs, too.
  const auto logits = [&](std::vector<std::string> args) {
    const std::string out = dir_->file("trace.safetensors");
    std::filesystem::remove(out);
    args.insert(args.begin(), {"trace", "--model", model(), "--prompt", "hello", "--dump", "logits",
                               "--out", out});
    const auto r = cli(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return read_all<float>(*open_tensor_source(out), "logits");
  };
  const auto plain = logits({});
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--recipe", "nvfp4"},
                                             {"--compute-dtype", "bf16"},
                                             {"--compute-dtype", "float16"},
                                             {"--head-recipe", "nvfp4"},
                                             {"--activations", "nvfp4"},
                                             {"--recipe", "nvfp4", "--activations", "int8"},
                                             {"--recipe", "nvfp4", "--scale-rule", "torchao"}}) {
    const double difference = relative_l2(logits(args), plain);
    EXPECT_GT(difference, 1e-5) << args[0] << " " << args[1];
    EXPECT_LT(difference, 1.0) << args[0] << " " << args[1];
  }
  EXPECT_NE(logits({"--recipe", "nvfp4"}), logits({"--recipe", "nvfp4", "--scale-rule", "absmax"}));
}

// Rounded keys and values move the probabilities a little, and over 1000 draws some fall elsewhere.
TEST_F(GenerateCommand, KvDtypeIsUsed) {
  const auto drawn = [](const std::string& type) {
    return ids(cli({"generate", "--model", (golden_dir() / "qwen3_tied").string(), "--input-ids",
                    "5,9,3", "--max-tokens", "1000", "--temp", "1.5", "--seed", "3", "--ignore-eos",
                    "--kv-dtype", type, "--print-ids"}));
  };
  const std::string fp32 = drawn("fp32"), bf16 = drawn("bf16"), fp16 = drawn("fp16");
  EXPECT_NE(fp32, bf16);
  EXPECT_NE(fp32, fp16);
  EXPECT_NE(bf16, drawn("fp8"));
  EXPECT_EQ(drawn("auto"), fp32);  // activations are not quantised here
  EXPECT_EQ(run({"--prompt", "hello", "--kv-dtype", "int3"}).code, 2);
}

TEST_F(GenerateCommand, OutputOptions) {
  const auto streamed = run({"--prompt", "hello"}),
             whole = run({"--prompt", "hello", "--stream", "false"});
  EXPECT_EQ(streamed.out, whole.out);
  EXPECT_TRUE(contains(run({"--prompt", "hello", "--timing"}).out, "[time] prefill:"));
  EXPECT_FALSE(contains(streamed.out, "[time]"));
}

TEST_F(GenerateCommand, MistakesAreAnswered) {
  struct Case {
    std::vector<std::string> args;
    int code;
    std::string says;
  };
  for (const Case& c : std::vector<Case>{
           {{"generate", "--prompt", "x"}, 2, "--model"},
           {{"generate", "--model", "/no/such/model", "--prompt", "x"}, 3, "/no/such/model"},
           {{"generate", "--model", model(), "--promt", "x"}, 2, "--prompt"},
           {{"generate", "--model", model(), "--prompt", "x", "--top-p", "1.5"}, 2, "--top-p"},
           {{"generate", "--model", model(), "--prompt", "x", "--max-tokens", "many"},
            2,
            "--max-tokens"},
           {{"generate", "--model", model(), "--prompt", "x", "--seed", "18446744073709551616"},
            2,
            "--seed"},
           {{"generate", "--model", model(), "--prompt", "x", "--input-ids", "1"}, 2, "once"},
           {{"generate", "--model", model(), "--input-ids", "288"}, 2, "vocabulary"},
           {{"generate", "--model", model(), "--input-ids", "1", "--system", "x"}, 2, "--system"},
           {{"generate", "--model", model(), "--input-ids", "1", "--raw"}, 2, "--raw"},
           {{"generate", "--model", model(), "--prompt", "x", "--raw", "--template", "predecessor"},
            2,
            "--template"},
           {{"generate", "--model", model(), "--prompt", "x", "--prefill", "token", "--chunk", "3"},
            2,
            "--chunk"},
           {{"generate", "--model", model(), "--prompt", "x", "--context", "9223372036854775807"},
            2,
            "--context"},
           {{"generate", "--model", model(), "--prompt", "x", "--device", "cuda"}, 4, "cuda"},
           {{"generate", "--model", model(), "--prompt", "x", "--context", "4096"}, 2, "512"},
           {{"generate", "--model", model(), "--prompt", "x", "--context", "4"}, 2, "context"},
           {{"generate", "--model", model(), "--prompt", "x", "--activations", "int8"}, 2, "dense"},
           {{"generate", "--model", model(), "--prompt", "x", "--quant", "fp4"}, 2, "--quant"},
           {{"generate", "--model", model(), "--prompt", "x", "--secret", "x"}, 2, "--secret"}}) {
    const auto r = cli(c.args);
    EXPECT_EQ(r.code, c.code) << r.err;
    EXPECT_TRUE(contains(r.err, c.says)) << r.err;
  }
}

TEST_F(GenerateCommand, TokenizerThatDoesNotFitIsRefused) {
  Config small = toy_chat_config();
  small.V = 264;  // fewer rows than the tokenizer has tokens
  TemporaryDirectory d("unfit");
  write_toy_directory(d.path(), small);
  const auto r = cli({"generate", "--model", d.path().string(), "--prompt", "x"});
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(contains(r.err, "264")) << r.err;
}

TEST_F(GenerateCommand, WidthThatIsNoMultipleOf16CannotBeNvfp4) {
  Config odd = toy_chat_config();
  odd.F = 104;
  TemporaryDirectory d("odd");
  write_toy_directory(d.path(), odd);
  const auto dense =
      cli({"generate", "--model", d.path().string(), "--prompt", "x", "--max-tokens", "1"});
  EXPECT_EQ(dense.code, 0) << dense.err;
  const auto r =
      cli({"generate", "--model", d.path().string(), "--prompt", "x", "--recipe", "nvfp4"});
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(contains(r.err, "down_proj")) << r.err;
}

TEST_F(GenerateCommand, TooLittleMemoryIsExit4) {
  Config huge = toy_chat_config();
  huge.max_positions = 1 << 30;
  TemporaryDirectory d("huge");
  write_toy_directory(d.path(), huge);
  const auto r =
      cli({"generate", "--model", d.path().string(), "--prompt", "x", "--context", "1000000000"});
  EXPECT_EQ(r.code, 4) << r.err;
  EXPECT_TRUE(contains(r.err, "KV cache")) << r.err;
}

// Broken weights: not a reply of noise and exit 0, but a message that names them and exit 3.
TEST_F(GenerateCommand, BrokenWeightsAreReported) {
  TemporaryDirectory d("broken");
  write_toy_directory(d.path());
  const auto file = d.path() / "model.safetensors";
  std::string bytes = read_text_file(file);
  const auto source = open_tensor_source(file);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + source->at("model.norm.weight").file_offset, &nan, sizeof nan);
  replace_file(file, bytes);
  cli_fails({"generate", "--model", d.path().string(), "--prompt", "x"}, 3,
            "tensor 'model.norm.weight' holds NaN or an infinity");
}

}  // namespace
}  // namespace nibble::test

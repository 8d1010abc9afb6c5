// SPDX-License-Identifier: MIT
// A GGUF on the command line: as a model, as a bag, as the start of a conversion or a training.
#include "apps/train_support.h"
#include "support/gguf_model.h"

namespace nibble::test {
namespace {

class GgufCommand : public testing::Test {
 protected:
  GgufCommand() {
    write_toy_directory(dir_.path() / "toy");
    GgufFile file = gguf_of_directory(dir_.path() / "toy");
    add_tokenizer(file, mini_tokenizer_text(), "qwen2");
    file.write(model());
  }
  std::string model() const { return dir_.file("x.gguf"); }
  std::string reply(const std::string& model, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"generate", "--model",      model, "--prompt",
                                     "hello",    "--max-tokens", "8",   "--print-ids"};
    args.insert(args.end(), more.begin(), more.end());
    return cli_ok(args);
  }
  TemporaryDirectory dir_{"gguf-cli"};
};

TEST_F(GgufCommand, AnswersLikeTheDirectoryItWasMadeOf) {
  EXPECT_EQ(reply(model()), reply(dir_.file("toy")));
  EXPECT_EQ(reply(model(), {"--recipe", "nvfp4"}), reply(dir_.file("toy"), {"--recipe", "nvfp4"}));
  EXPECT_EQ(cli_ok({"tokenize", "--model", model(), "--text", "hello 12"}),
            cli_ok({"tokenize", "--model", dir_.file("toy"), "--text", "hello 12"}));
}

TEST_F(GgufCommand, ConvertWritesAModelDirectoryOrADat) {
  cli_ok({"convert", model(), dir_.file("hf")});
  for (const char* name :
       {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    EXPECT_TRUE(std::filesystem::exists(dir_.path() / "hf" / name)) << name;
  }
  EXPECT_EQ(reply(dir_.file("hf")), reply(model()));
  std::filesystem::create_directory(dir_.file("d"));
  cli_ok({"convert", model(), dir_.file("d/x.dat"), "--quant", "nvfp4"});
  EXPECT_TRUE(std::filesystem::exists(dir_.file("d/tokenizer.json")));
  reply(dir_.file("d/x.dat"));
  cli_ok({"convert", dir_.file("toy"), dir_.file("other")});
  EXPECT_EQ(reply(dir_.file("other")), reply(dir_.file("toy")));
}

TEST_F(GgufCommand, ABagKeepsNamesAndShapes) {
  GgufFile bag;
  const std::vector<float> x(64, 1.5f);
  bag.add("blocks", {32, 2}, 8, q8_0_block(x.data()) + q8_0_block(x.data()));
  bag.add("half.scale", {2}, 1, little_endian(uint16_t(0x3c00)) + little_endian(uint16_t(0xc000)));
  bag.write(dir_.file("bag.gguf"));
  cli_ok({"convert", dir_.file("bag.gguf"), dir_.file("bag.safetensors"), "--quant", "none",
          "--dtype", "float32"});
  const auto out = open_tensor_source(dir_.file("bag.safetensors"));
  EXPECT_EQ(out->at("blocks").shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(read_all<float>(*out, "half.scale"), (std::vector<float>{1, -2}));
  EXPECT_EQ(out->at("blocks").dtype, DType::f32);
}

TEST_F(GgufCommand, DamageIsExitCode3) {
  const std::string good = file_bytes(model());
  replace_file(dir_.file("cut.gguf"), good.substr(0, good.size() / 2));
  for (const char* command : {"generate", "chat", "check", "plan", "trace"}) {
    std::vector<std::string> args = {command, "--model", dir_.file("cut.gguf")};
    if (std::string(command) == "trace")
      args.insert(args.end(), {"--input-ids", "1", "--top", "1"});
    cli_fails(args, 3, "(cut?)");
  }
  cli_fails({"inspect", dir_.file("cut.gguf")}, 3, "(cut?)");
  cli_fails({"convert", dir_.file("cut.gguf"), dir_.file("o")}, 3, "(cut?)");
}

TEST_F(GgufCommand, InspectSaysHowItIsStored) {
  const std::string out = cli_ok({"inspect", model()});
  EXPECT_TRUE(contains(out, "model.layers.0.self_attn.q_proj.weight")) << out;
  EXPECT_TRUE(contains(out, ": gguf, ")) << out;
  EXPECT_TRUE(contains(out, "sound")) << out;
}

// A stop text is cut off wherever the tokens lie, and nothing of it is shown.
// The trainer's own replies are those of the file it wrote, in either form.
TEST_F(GgufCommand, ATrainedGgufSaysWhatTheTrainerSaid) {
  replace_file(dir_.file("pairs.tsv"), "hello\tgood day\nsky\tit is blue\n");
  replace_file(dir_.file("probes.json"), R"({"name": "p", "version": 1, "probes": [
    {"id": "h", "group": "g", "language": "en", "max_tokens": 8, "rules": [{"contains": "x"}],
     "messages": [{"role": "user", "content": "hello"}]}]})");
  std::filesystem::create_directory(dir_.file("dat"));
  for (const std::string recipe : {"nvfp4", "bf16"}) {
    for (const std::string to : {"hf", "dat/x.dat"}) {
      const std::string out = dir_.file(to), run = recipe + (to == "hf" ? "-hf" : "-dat");
      cli_ok({"train",
              "--model",
              model(),
              "--train-data",
              dir_.file("pairs.tsv"),
              "--steps",
              "3",
              "--lr",
              "1e-3",
              "--recipe",
              recipe,
              "--output",
              out,
              "--force",
              "--runs-dir",
              dir_.file("runs"),
              "--run-name",
              run,
              "--probes",
              dir_.file("probes.json"),
              "--probe-replies",
              "1"});
      const auto replies = read_jsonl(dir_.path() / "runs" / run / "replies.jsonl");
      ASSERT_FALSE(replies.empty());
      EXPECT_EQ(replies.back()["step"], 3);
      const std::string said = cli_ok({"generate", "--model", out, "--recipe", recipe, "--prompt",
                                       "hello", "--max-tokens", "8", "--activations", "bf16"});
      EXPECT_EQ(said, replies.back()["reply"].get<std::string>() + "\n") << run;
    }
  }
}

TEST_F(GgufCommand, StopTexts) {
  const auto text = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"generate", "--model",      model(), "--prompt",
                                     "hello",    "--max-tokens", "12",    "--ignore-eos"};
    args.insert(args.end(), more.begin(), more.end());
    return cli_ok(args);
  };
  const std::string all = text({});
  ASSERT_GT(all.size(), 4u);
  for (size_t at = 1; at + 2 < all.size(); ++at) {
    if ((all[at] & 0xc0) == 0x80 || (all[at + 2] & 0xc0) == 0x80) continue;  // inside a character
    const std::string stop = all.substr(at, 2);
    EXPECT_EQ(text({"--stop", stop}), all.substr(0, all.find(stop)) + "\n") << stop;
    break;
  }
  cli_fails({"generate", "--model", model(), "--prompt", "x", "--stop", ""}, 2, "--stop");
}

}  // namespace
}  // namespace nibble::test

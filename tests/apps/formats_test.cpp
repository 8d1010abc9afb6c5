// SPDX-License-Identifier: MIT
// Formats for other programs on the command line: what becomes what, there and back.
#include "apps/train_support.h"
#include "formats/gguf/block_types.h"
#include "formats/gguf/gguf.h"
#include "model/gguf_model.h"

namespace nibble::test {
namespace {

class Formats : public testing::Test {
 protected:
  std::string to(const std::string& in, const std::string& name,
                 std::vector<std::string> more = {}) {
    const std::string out = dir_.file(name);
    more.insert(more.begin(), {"convert", in, out});
    report_ = cli_ok(more);
    return out;
  }
  // Of the blocks a tensor lies in; empty: none.
  static std::string type(const TensorSource& source, const std::string& name) {
    const BlockType* blocks = source.at(name).blocks;
    return blocks ? std::string(blocks->name) : "";
  }
  TemporaryDirectory dir_{"formats"};
  std::string report_;
  const std::string mini_ = (std::filesystem::path(kSourceDir) / "models/mini/mini.dat").string();
};

TEST_F(Formats, ThroughAGgufAndBackIsTheSameFile) {
  // Every row is a multiple of 64, so all of it is exact.
  const std::string gguf = to(mini_, "mini.gguf");
  EXPECT_TRUE(contains(report_, "0 quantised, 0 expanded")) << report_;
  EXPECT_EQ(file_bytes(to(gguf, "back.dat")), file_bytes(mini_));
  // What lies beside the file is made of it alone.
  EXPECT_TRUE(contains(file_bytes(dir_.path() / "Modelfile"), "FROM ./mini.gguf"));
}

TEST_F(Formats, WhatAGgufCannotHoldIsNamed) {
  const std::string packed = to(golden("qwen3_tied"), "p.dat", {"--quant", "nvfp4"});
  const auto source = open_gguf(to(packed, "x.gguf"));
  EXPECT_TRUE(contains(report_,
                       "note: Q8_0, rows are no multiple of 64: "
                       "model.layers.*.mlp.down_proj.weight (2)"))
      << report_;
  EXPECT_EQ(type(*source, "blk.0.attn_q.weight"), "NVFP4");
  EXPECT_EQ(type(*source, "blk.0.ffn_down.weight"), "Q8_0");
  EXPECT_EQ(type(*source, "token_embd.weight"), "");
  EXPECT_EQ(source->values().integer("general.file_type"), 39);  // NVFP4 has most elements
}

TEST_F(Formats, ABiasAndAScaleDoNotStandTogether) {
  write_toy_directory(dir_.path() / "toy", [] {
    Config c = of_family(toy_chat_config(), ToyFamily::qwen2);
    c.F = 128;
    return c;
  }());
  const std::string toy = dir_.file("toy");
  const auto two = open_gguf(to(toy, "two.gguf", {"--quant", "nvfp4"}));
  EXPECT_EQ(type(*two, "blk.0.attn_q.weight"), "Q8_0");
  EXPECT_EQ(type(*two, "blk.0.attn_output.weight"), "NVFP4");
  EXPECT_TRUE(two->find("blk.0.attn_output.scale"));
  EXPECT_TRUE(contains(report_, "a bias stands beside the scale")) << report_;
  const auto one = open_gguf(to(toy, "one.gguf", {"--quant", "nvfp4", "--scales", "single-level"}));
  EXPECT_EQ(type(*one, "blk.0.attn_q.weight"), "NVFP4");
  EXPECT_EQ(one->find("blk.0.attn_output.scale"), nullptr);
  // Two-level values come back as they were made.
  const auto direct =
      open_tensor_source(to(toy, "d.safetensors", {"--quant", "nvfp4", "--scales", "two-level"}));
  const auto back = open_tensor_source(to(dir_.file("two.gguf"), "b.safetensors"));
  for (const char* name : {"self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"}) {
    for (const char* part : {".qdata", ".scale", ".global_scale"}) {
      const std::string entry = fmt::format("model.layers.1.{}.weight{}", name, part);
      EXPECT_EQ(entry_bytes(*back, entry), entry_bytes(*direct, entry)) << entry;
    }
  }
}

TEST_F(Formats, EveryFamilyThroughAGgufHasItsValues) {
  for (const char* model : {"qwen3_tied", "qwen3_untied", "qwen2_tied", "qwen2_untied",
                            "llama_tied", "llama3_rope", "yarn_rope"}) {
    const std::string gguf = to(golden(model), std::string(model) + ".gguf", {"--quant", "none"});
    const auto a = open_tensor_source(golden(model));
    const auto b = open_model_source(gguf);
    ASSERT_EQ(a->tensors().size(), b->tensors().size()) << model;
    for (const TensorInfo& t : a->tensors()) {
      EXPECT_EQ(entry_bytes(*b, t.name), entry_bytes(*a, t.name)) << model << " " << t.name;
    }
    const Config before = load_config(golden(std::string(model) + "/config.json"));
    const Config after = load_config(gguf);
    EXPECT_EQ(after.rope.kind, before.rope.kind) << model;
    // The metadata has fp32 for theta, and the frequencies follow from it.
    const auto f0 = rope_frequencies(before.rope, before.D),
               f1 = rope_frequencies(after.rope, after.D);
    for (size_t i = 0; i < f0.turns.size(); ++i) {
      EXPECT_NEAR(f1.turns[i], f0.turns[i], 1e-6 * f0.turns[i]) << model;
    }
    EXPECT_EQ(after.tied, before.tied) << model;
    EXPECT_EQ(after.max_positions, before.max_positions) << model;
    EXPECT_EQ(cli({"inspect", gguf}).code, 0) << model;
  }
}

TEST_F(Formats, TextsGoThroughAGguf) {
  const std::string gguf = to(mini_, "mini.gguf");
  const std::string text = "hello 12 <|im_start|>user\n我是誰<|im_end|> don't";
  EXPECT_EQ(cli_ok({"tokenize", "--model", gguf, "--text", text}),
            cli_ok({"tokenize", "--model", mini_, "--text", text}));
  const std::vector<std::string> ask = {"--prompt", "hello", "--max-tokens", "12"};
  const auto reply = [&](const std::string& model) {
    std::vector<std::string> args = {"generate", "--model", model};
    args.insert(args.end(), ask.begin(), ask.end());
    return cli_ok(args);
  };
  EXPECT_EQ(reply(gguf), reply(mini_));
  // End tokens, in their order, are those of the config.
  const auto ends = load_config(gguf).eos_ids;
  EXPECT_EQ(open_gguf(gguf)->values().integer("tokenizer.ggml.eos_token_id"), 3048);
  EXPECT_EQ(ends.front(), 3048);
}

TEST_F(Formats, ADirectoryIsComplete) {
  to(mini_, "hf", {"--to", "hf"});
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json",
                           "generation_config.json", "model.safetensors", "README.md"}) {
    EXPECT_TRUE(std::filesystem::exists(dir_.path() / "hf" / name)) << name;
  }
  const std::string card = file_bytes(dir_.path() / "hf/README.md");
  EXPECT_TRUE(contains(card, "Converted from mini by nibble")) << card;
  EXPECT_FALSE(contains(card, dir_.path().string())) << card;
}

TEST_F(Formats, TrainingWritesWhatTheNameSays) {
  Config c = toy_chat_config();
  c.F = 128;  // rows that NVFP4 in a GGUF can hold
  write_toy_directory(dir_.path() / "toy", c);
  replace_file(dir_.file("pairs.tsv"), "hello\tgood day\nsky\tit is blue\n");
  const auto train = [&](const std::string& recipe, const std::string& out) {
    return cli({"train", "--model", dir_.file("toy"), "--train-data", dir_.file("pairs.tsv"),
                "--steps", "3", "--lr", "1e-3", "--recipe", recipe, "--output", dir_.file(out),
                "--runs-dir", dir_.file("runs")});
  };
  const auto reply = [&](const std::string& model) {
    return cli_ok({"generate", "--model", dir_.file(model), "--prompt", "hello", "--max-tokens",
                   "8", "--activations", "bf16", "--print-ids"});
  };
  for (const std::string recipe : {"nvfp4", "bf16"}) {
    for (const std::string name : {"dat/x.dat", "x.gguf"}) {
      std::filesystem::create_directories(dir_.path() / recipe / "dat");
      const CliResult r = train(recipe, recipe + "/" + name);
      ASSERT_EQ(r.code, 0) << r.err;
    }
    EXPECT_EQ(reply(recipe + "/x.gguf"), reply(recipe + "/dat/x.dat")) << recipe;
    const auto made = open_gguf(dir_.file(recipe + "/x.gguf"));
    EXPECT_EQ(made->values().text("general.name"), "x");
    EXPECT_EQ(made->values().text("nibble.train-data.name"), "pairs.tsv");
    EXPECT_EQ(made->values().text("nibble.train-data.sha256").size(), 64u);
    const bool nvfp4 = made->at("blk.0.ffn_down.weight").blocks != nullptr;
    EXPECT_EQ(nvfp4, recipe == "nvfp4");
  }
  const CliResult refused = train("nvfp4", "x.bin");
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_TRUE(contains(refused.err, "'.bin'")) << refused.err;
  const CliResult directory = train("bf16", "hf");
  ASSERT_EQ(directory.code, 0) << directory.err;
  const std::string card = file_bytes(dir_.path() / "hf/README.md");
  EXPECT_TRUE(contains(card, "Trained from toy by nibble")) << card;
  EXPECT_TRUE(contains(card, "3 steps, loss of the last ")) << card;
  EXPECT_TRUE(contains(card, "| train-data | `pairs.tsv` | `")) << card;
}

TEST_F(Formats, WhatMakesNoSenseIsSaid) {
  const auto fails = [&](std::vector<std::string> more, int code, const std::string& part) {
    more.insert(more.begin(), {"convert", mini_});
    cli_fails(more, code, part);
  };
  fails({dir_.file("x.bin")}, 2, "nibble writes no '.bin' files");
  fails({dir_.file("x.pt"), "--to", "hf"}, 2, "'.pt'");
  fails({dir_.file("x.dat"), "--to", "gguf"}, 2,
        "--to gguf writes a file whose name ends in .gguf");
  fails({dir_.file("x.dat"), "--quant", "q8_0"}, 2, "a type of a GGUF");
  fails({dir_.file("x.gguf"), "--quant", "q8_0", "--scales", "two-level"}, 2, "--quant nvfp4");
  cli_fails({"init", "--config", golden("qwen3_tied/config.json"), "--out", dir_.file("x.gguf")}, 2,
            "init writes no GGUF");
}

}  // namespace
}  // namespace nibble::test

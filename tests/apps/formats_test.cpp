// SPDX-License-Identifier: MIT
// Formats for other programs on the command line: what becomes what, there and back.
#include "apps/train_support.h"
#include "formats/gguf/block_types.h"
#include "formats/gguf/gguf.h"
#include "formats/safetensors.h"
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

TEST_F(Formats, GlobalScalesGoWhereTheyAreApplied) {
  const auto toy = [&](const char* name, ToyFamily family) {
    Config c = of_family(toy_chat_config(), family);
    c.F = 128;
    write_toy_directory(dir_.path() / name, c);
    return dir_.file(name);
  };
  // The feed-forward layers of llama.cpp's qwen2 leave them out: one level where it is made here,
  // another type where it comes with two.
  const std::string qwen2 = toy("qwen2", ToyFamily::qwen2);
  const auto made = open_gguf(to(qwen2, "made.gguf", {"--quant", "nvfp4"}));
  const std::string why = ", llama.cpp leaves the global scale out here in a qwen2: ";
  const std::string where =
      "model.layers.*.mlp.down_proj.weight (3), model.layers.*.mlp.gate_proj.weight (3), "
      "model.layers.*.mlp.up_proj.weight (3)\n";
  EXPECT_TRUE(contains(report_, "note: NVFP4 of one level" + why + where)) << report_;
  const auto came = open_gguf(to(
      to(qwen2, "two/x.safetensors", {"--quant", "nvfp4", "--scales", "two-level"}), "came.gguf"));
  EXPECT_TRUE(contains(report_, "note: Q8_0" + why + where)) << report_;
  for (const TensorSource* s : {made.get(), came.get()}) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      EXPECT_EQ(type(*s, fmt::format("blk.0.{}.weight", name)), "NVFP4") << name;
      EXPECT_TRUE(s->find(fmt::format("blk.0.{}.scale", name))) << name;
    }
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
      EXPECT_EQ(type(*s, fmt::format("blk.0.{}.weight", name)), s == made.get() ? "NVFP4" : "Q8_0");
      EXPECT_EQ(s->find(fmt::format("blk.0.{}.scale", name)), nullptr) << name;
    }
  }

  const std::string qwen3 = toy("qwen3", ToyFamily::qwen3);
  const auto two = open_gguf(to(qwen3, "two.gguf", {"--quant", "nvfp4"}));
  EXPECT_EQ(type(*two, "blk.0.attn_q.weight"), "NVFP4");
  EXPECT_TRUE(two->find("blk.0.attn_output.scale"));
  // Two-level values come back as they were made.
  const auto direct =
      open_tensor_source(to(qwen3, "d.safetensors", {"--quant", "nvfp4", "--scales", "two-level"}));
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

TEST_F(Formats, EveryFormOfNvfp4BecomesAGguf) {
  for (const ToyFamily family : {ToyFamily::qwen3, ToyFamily::qwen2, ToyFamily::llama}) {
    Config c = of_family(toy_chat_config(), family);
    c.F = 128;
    const std::string toy = "toy" + std::to_string(int(family));
    write_toy_directory(dir_.path() / toy, c);
    for (const std::string form : {"compressed-tensors", "modelopt"}) {
      const std::string in = to(dir_.file(toy), toy + form, {"--to", form});
      const std::string gguf = to(in, toy + form + ".gguf", {"--force"});
      const auto a = open_tensor_source(in);
      const auto b = open_model_source(gguf);
      const WeightIndex before(*a), after(*b);
      int64_t packed = 0;
      for (const LogicalTensor& t : before.tensors()) {
        packed += after.at(t.name).packed();
        EXPECT_EQ(values(after, t.name), values(before, t.name)) << form << " " << t.name;
      }
      // Their global scales are powers of two, which go into the scales of the blocks.
      EXPECT_EQ(packed, 3 * 7) << form;
    }
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

TEST_F(Formats, WishesForSamplingGoAlong) {
  write_toy_directory(dir_.path() / "toy");
  replace_file(dir_.path() / "toy/generation_config.json",
               R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
                   "repetition_penalty": 1.1, "eos_token_id": [7, 5]})");
  replace_file(
      dir_.path() / "toy/tokenizer_config.json",
      R"({"chat_template": "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"})");
  const std::string gguf = to(dir_.file("toy"), "x.gguf");
  const auto source = open_gguf(gguf);
  const GgufMetadata& m = source->values();
  EXPECT_EQ(m.number("general.sampling.temp"), double(0.7f));
  EXPECT_EQ(m.integer("general.sampling.top_k"), 20);
  EXPECT_EQ(m.integer("tokenizer.ggml.eos_token_id"), 7);
  EXPECT_EQ(m.integer("tokenizer.ggml.eot_token_id"), 5);
  EXPECT_EQ(m.text("tokenizer.chat_template"),
            "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}");
  const std::string ollama = file_bytes(dir_.path() / "Modelfile");
  for (const char* line :
       {"PARAMETER temperature 0.7\n", "PARAMETER top_k 20\n", "PARAMETER top_p 0.8\n",
        "PARAMETER repeat_penalty 1.1\n", "PARAMETER stop \"<|im_end|>\"\n"}) {
    EXPECT_TRUE(contains(ollama, line)) << line << ollama;
  }
  // And come back from there.
  to(gguf, "hf", {"--to", "hf"});
  const auto back = nlohmann::json::parse(file_bytes(dir_.path() / "hf/generation_config.json"));
  EXPECT_EQ(back["temperature"], 0.7);
  EXPECT_EQ(back["eos_token_id"], (std::vector<int>{7, 5}));
  EXPECT_EQ(back["do_sample"], true);
  EXPECT_EQ(back["repetition_penalty"], 1.1);
  // A GGUF of a GGUF keeps what its maker said.
  const auto again = open_gguf(to(gguf, "again.gguf", {"--quant", "q8_0", "--force"}));
  EXPECT_EQ(again->values().text("general.name"), "x");
  EXPECT_EQ(again->values().texts("tokenizer.ggml.tokens"), m.texts("tokenizer.ggml.tokens"));
  EXPECT_EQ(again->values().integer("general.file_type"), 7);
}

TEST_F(Formats, ATokenizerThatAGgufCannotNameIsRefused) {
  write_toy_directory(dir_.path() / "toy");
  const std::filesystem::path file = dir_.path() / "toy/tokenizer.json";
  auto j = nlohmann::json::parse(file_bytes(file));
  j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a-z]+";
  replace_file(file, j.dump());
  cli_fails({"convert", dir_.file("toy"), dir_.file("x.gguf")}, 3, "has no name there");
  EXPECT_FALSE(std::filesystem::exists(dir_.file("x.gguf")));
  to(dir_.file("toy"), "hf", {"--to", "hf"});
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

TEST_F(Formats, WhateverNamesAModelIsAnInput) {
  namespace fs = std::filesystem;
  const std::string wanted = file_bytes(to(mini_, "a/x.gguf"));
  const std::string folder = fs::path(mini_).parent_path().string();
  EXPECT_EQ(file_bytes(to(folder, "b/x.gguf")), wanted);
  EXPECT_EQ(file_bytes(to(folder + "/", "我的 模型/x.gguf")), wanted);
  EXPECT_EQ(cli({"inspect", folder}).code, 0);
  // Hugging Face's cache: links, and a folder whose name says nothing.
  write_toy_directory(dir_.path() / "hub/models--org--tiny--7B/blobs");
  const fs::path hub = dir_.path() / "hub/models--org--tiny--7B";
  fs::create_directories(hub / "snapshots/0123abc");
  for (const auto& e : fs::directory_iterator(hub / "blobs")) {
    const fs::path name = e.path().filename();
    fs::create_symlink("../../blobs" / name, hub / "snapshots/0123abc" / name);
  }
  fs::create_directories(hub / "refs");
  replace_file(hub / "refs/main", "0123abc\n");
  to(hub.string(), "d", {"--to", "hf"});
  EXPECT_TRUE(contains(file_bytes(dir_.file("d/README.md")), "Converted from 7B by nibble"));
  to((hub / "snapshots/0123abc").string(), "e", {"--to", "hf"});
  EXPECT_EQ(file_bytes(dir_.file("e/model.safetensors")),
            file_bytes(dir_.file("d/model.safetensors")));
  EXPECT_FALSE(fs::is_symlink(dir_.path() / "e/config.json"));
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
  EXPECT_TRUE(contains(card, "- 3 steps\n")) << card;
  EXPECT_TRUE(contains(card, "| train-data | `pairs.tsv` | `")) << card;
  // A conversion of what was trained finds the run that did it.
  cli_ok({"convert", dir_.file("nvfp4/dat/x.dat"), dir_.file("later"), "--to", "hf", "--config",
          dir_.file("toy/config.json"), "--runs-dir", dir_.file("runs")});
  const std::string later = file_bytes(dir_.path() / "later/README.md");
  EXPECT_TRUE(contains(later, "Trained from toy by nibble")) << later;
  EXPECT_TRUE(contains(later, "| train-data | `pairs.tsv` | `")) << later;
}

TEST_F(Formats, ThroughOtherProgramsNvfp4AndBack) {
  for (const std::string form : {"compressed-tensors", "modelopt"}) {
    const std::string hf = to(mini_, form, {"--to", form});
    EXPECT_TRUE(contains(report_, "0 codes changed, 0 scales of blocks")) << report_;
    // To the byte: the head, which these programs take from the embedding, is made of it again.
    const auto a = open_tensor_source(mini_);
    const auto b = open_tensor_source(to(hf, form + ".dat", {"--quant", "nvfp4"}));
    int64_t parts = 0;
    for (const TensorInfo& t : a->tensors()) {
      EXPECT_EQ(entry_bytes(*b, t.name), entry_bytes(*a, t.name)) << form << " " << t.name;
      parts += t.name.ends_with(".qdata");
    }
    EXPECT_EQ(parts, 7 * 8 + 1);
    EXPECT_EQ(file_bytes(dir_.file(form + ".dat")), file_bytes(mini_));
    const std::vector<std::string> ask = {"--prompt", "hello", "--max-tokens", "8"};
    std::vector<std::string> args = {"generate", "--model", hf};
    args.insert(args.end(), ask.begin(), ask.end());
    EXPECT_FALSE(cli_ok(args).empty());
    EXPECT_EQ(cli({"inspect", hf}).code, 0);
    // The one form into the other: the same codes and scales again.
    const std::string other = form == "modelopt" ? "compressed-tensors" : "modelopt";
    const auto c = open_tensor_source(
        to(to(hf, "o-" + form, {"--to", other}), "o" + form + ".dat", {"--quant", "nvfp4"}));
    for (const TensorInfo& t : b->tensors()) {
      EXPECT_EQ(entry_bytes(*c, t.name), entry_bytes(*b, t.name)) << t.name;
    }
    // Nothing is left of it in a directory without NVFP4.
    const std::string plain = to(hf, "plain-" + form, {"--to", "hf"});
    EXPECT_FALSE(contains(file_bytes(plain + "/config.json"), "quantization_config"));
  }
}

TEST_F(Formats, ShardsAreTheSameModel) {
  namespace fs = std::filesystem;
  for (const std::string form : {"hf", "compressed-tensors", "modelopt"}) {
    const std::string one = to(mini_, "one-" + form, {"--to", form});
    const std::string many = to(mini_, "many-" + form, {"--to", form, "--max-shard-size", "1.6MB"});
    EXPECT_FALSE(fs::exists(many + "/model.safetensors"));
    const auto index = nlohmann::json::parse(file_bytes(many + "/model.safetensors.index.json"));
    const auto a = open_tensor_source(one), b = open_tensor_source(many);
    ASSERT_EQ(a->tensors().size(), b->tensors().size());
    EXPECT_EQ(index["weight_map"].size(), a->tensors().size());
    uint64_t total = 0;
    std::map<std::string, uint64_t> shards;
    for (const TensorInfo& t : a->tensors()) {
      EXPECT_EQ(entry_bytes(*a, t.name), entry_bytes(*b, t.name)) << form << " " << t.name;
      shards[index["weight_map"][t.name]] += t.n_bytes;
      total += t.n_bytes;
    }
    EXPECT_EQ(index["metadata"]["total_size"], total);
    EXPECT_GT(shards.size(), 2u);
    for (const auto& [name, bytes] : shards) EXPECT_LE(bytes, 1'600'000u) << name;
    // Everything is as it was beside them, and all of it comes back to the byte.
    EXPECT_EQ(file_bytes(one + "/config.json"), file_bytes(many + "/config.json"));
    EXPECT_EQ(file_bytes(to(many, "a.dat", {"--quant", "nvfp4", "--force"})),
              file_bytes(to(one, "b.dat", {"--quant", "nvfp4", "--force"})));
    // Another number of shards in their place leaves none of the old ones.
    to(mini_, "many-" + form, {"--to", form, "--max-shard-size", "3MB", "--force"});
    for (const auto& e : fs::directory_iterator(many)) {
      EXPECT_FALSE(shards.contains(e.path().filename().string())) << e.path();
    }
    EXPECT_EQ(cli({"inspect", many}).code, 0);
  }
  cli_fails({"convert", mini_, dir_.file("x.gguf"), "--max-shard-size", "1MB"}, 2,
            "--max-shard-size is about directories");
  cli_fails({"convert", mini_, dir_.file("x"), "--max-shard-size", "big"}, 2, "is not a size like");
}

TEST_F(Formats, OneScaleForWhatRunsAsOneChangesTheFewestCodes) {
  // Two-level scales of their own: q, k and v cannot keep them.
  const std::string own =
      to(golden("qwen3_untied"), "own.dat", {"--quant", "nvfp4", "--scales", "two-level"});
  const std::string hf = to(own, "ct", {"--to", "compressed-tensors"});
  EXPECT_FALSE(contains(report_, " 0 scales of blocks")) << report_;
  const auto a = open_tensor_source(own), b = open_tensor_source(hf);
  const WeightIndex before(*a), after(*b);
  for (const LogicalTensor& t : before.tensors()) {
    if (!t.packed() || t.name == "lm_head.weight") continue;
    const LogicalTensor& now = after.at(t.name);
    // A scale moves by half of its last place of three bits; products round once more.
    const auto x = values(before, t.name), y = values(after, t.name);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], x[i], std::abs(x[i]) * (0x1p-4 + 1e-6)) << t.name << " " << i;
    }
    if (t.name.ends_with("k_proj.weight")) {
      const std::string q = t.name.substr(0, t.name.size() - 13) + "q_proj.weight";
      EXPECT_EQ(read_global_scale(*b, now), read_global_scale(*b, after.at(q)));
    }
  }
}

TEST_F(Formats, ACheckpointBecomesAnything) {
  write_toy_directory(dir_.path() / "toy");
  replace_file(dir_.file("pairs.tsv"), "hello\tgood day\nsky\tit is blue\n");
  cli_ok({"train", "--model", dir_.file("toy"), "--train-data", dir_.file("pairs.tsv"), "--steps",
          "2", "--lr", "1e-3", "--recipe", "bf16", "--save-every-steps", "2", "--checkpoint-dir",
          dir_.file("saved"), "--output", dir_.file("d/x.gguf"), "--runs-dir", dir_.file("runs")});
  const auto reply = [&](const std::string& model) {
    return cli_ok(
        {"generate", "--model", model, "--prompt", "hello", "--max-tokens", "8", "--print-ids"});
  };
  const std::string wanted = reply(dir_.file("d/x.gguf"));
  EXPECT_EQ(reply(to(dir_.file("saved"), "c.gguf")), wanted);
  EXPECT_EQ(reply(to(dir_.file("saved"), "c", {"--to", "hf"})), wanted);
  to(dir_.file("saved"), "ct", {"--to", "compressed-tensors"});
  EXPECT_EQ(cli({"inspect", dir_.file("ct")}).code, 0);
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
  fails({dir_.file("x"), "--to", "modelopt", "--quant", "none"}, 2, "--to modelopt is about NVFP4");
  fails({dir_.file("x"), "--calibrate", mini_}, 2, "--calibrate is about");
  fails({dir_.file("x.gguf"), "--quant", "q8_0", "--scales", "two-level"}, 2, "--quant nvfp4");
  cli_fails({"init", "--config", golden("qwen3_tied/config.json"), "--out", dir_.file("x.gguf")}, 2,
            "init writes no GGUF");
}

}  // namespace
}  // namespace nibble::test

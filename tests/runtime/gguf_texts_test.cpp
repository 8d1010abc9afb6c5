// SPDX-License-Identifier: MIT
// What a GGUF brings instead of files beside it: tokenizer, template, end tokens, sampling; and the
// names of a model that is one.
#include "runtime/gguf_texts.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "formats/gguf/gguf.h"
#include "model/config.h"
#include "runtime/generation_config.h"
#include "runtime/model_paths.h"
#include "runtime/model_texts.h"
#include "support/gguf_model.h"
#include "support/golden.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

class GgufTexts : public testing::Test {
 protected:
  std::filesystem::path write(const GgufFile& file, const std::string& name = "m.gguf") {
    file.write(dir_.file(name));
    return dir_.file(name);
  }
  static GgufFile with_tokenizer(const std::string& pre) {
    GgufFile file;
    add_tokenizer(file, mini_tokenizer_text(), pre);
    return file;
  }
  std::string refusal(const GgufFile& file) {
    const auto path = write(file);
    try {
      load_tokenizer(path);
    } catch (const FormatError& e) {
      return e.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
  }
  TemporaryDirectory dir_{"gguf-texts"};
};

TEST_F(GgufTexts, TheTokenizerIsTheOneItWasMadeOf) {
  const Tokenizer from = Tokenizer::parse(mini_tokenizer_text(), "mini");
  GgufFile file = with_tokenizer("qwen2");
  const Tokenizer made = load_tokenizer(write(file));
  EXPECT_EQ(made.vocab_size(), from.vocab_size());
  for (const char* text :
       {"hello world 1234", "<|im_start|>user\n你好<|im_end|>", "e\u0301  \n x"}) {
    EXPECT_EQ(made.encode(text), from.encode(text)) << text;
  }
  for (int32_t id = 0; id < from.vocab_size(); ++id) {
    EXPECT_EQ(made.is_special(id), from.is_special(id)) << id;
    EXPECT_EQ(made.is_added(id), from.is_added(id)) << id;
  }
}

TEST_F(GgufTexts, SplittingRulesByName) {
  const std::string text = "it's  12345";
  const auto pieces = [&](const std::string& pre) {
    return load_tokenizer(write(with_tokenizer(pre))).encode(text).size();
  };
  for (const char* pre : {"qwen2", "smollm", "llama-bpe", "gpt-2"}) EXPECT_GT(pieces(pre), 0u);
  const std::string why = refusal(with_tokenizer("tekken"));
  EXPECT_NE(why.find("'tekken' is not supported"), std::string::npos) << why;
  EXPECT_NE(why.find("--tokenizer"), std::string::npos) << why;
}

TEST_F(GgufTexts, OtherTokenizersAreRefusedByName) {
  for (const auto& [model, kind] : {std::pair{"llama", "SentencePiece"}, {"bert", "WordPiece"}}) {
    GgufFile file;
    file.text("tokenizer.ggml.model", model);
    file.texts("tokenizer.ggml.tokens", {"a"});
    EXPECT_NE(refusal(file).find(kind), std::string::npos);
  }
}

TEST_F(GgufTexts, NamesThatFillTheEmbeddingAreNoTokens) {
  GgufFile file;
  auto json = nlohmann::json::parse(mini_tokenizer_text());
  const Tokenizer from = Tokenizer::parse(mini_tokenizer_text(), "mini");
  add_tokenizer(file, mini_tokenizer_text(), "qwen2");
  GgufMetadata m = open_gguf(write(file))->values();
  // The same with three names behind.
  GgufStrings tokens = m.texts("tokenizer.ggml.tokens");
  std::vector<int32_t> types;
  for (const int64_t t : m.integers("tokenizer.ggml.token_type")) types.push_back(int32_t(t));
  for (int i = 0; i < 3; ++i) {
    tokens.push_back("[PAD" + std::to_string(i) + "]");
    types.push_back(5);
  }
  GgufFile padded;
  padded.text("tokenizer.ggml.model", "gpt2");
  padded.text("tokenizer.ggml.pre", "qwen2");
  padded.texts("tokenizer.ggml.tokens", tokens);
  padded.integers("tokenizer.ggml.token_type", types);
  padded.texts("tokenizer.ggml.merges", m.texts("tokenizer.ggml.merges"));
  EXPECT_EQ(load_tokenizer(write(padded)).vocab_size(), from.vocab_size());
}

TEST_F(GgufTexts, TemplateAndTokensOfTheConfig) {
  GgufFile file = with_tokenizer("qwen2");
  file.text("general.architecture", "qwen2");
  file.u32("qwen2.block_count", 1);
  file.u32("qwen2.context_length", 99);
  file.u32("tokenizer.ggml.bos_token_id", 1);
  file.u32("tokenizer.ggml.eos_token_id", 2);
  file.u32("tokenizer.ggml.eot_token_id", 3);
  file.u32("tokenizer.ggml.eom_token_id", 2);
  file.flag("tokenizer.ggml.add_bos_token", true);
  file.text("tokenizer.chat_template", "{{ messages }}");
  file.f32("general.sampling.temp", 0.7f);
  file.raw("general.sampling.top_k", GgufType::i32, little_endian(int32_t(20)));
  const auto path = write(file);
  const GgufStrings tokens = open_gguf(path)->values().texts("tokenizer.ggml.tokens");
  const auto j = nlohmann::json::parse(*companion_text(path, "tokenizer_config.json"));
  EXPECT_EQ(j.at("chat_template"), "{{ messages }}");
  EXPECT_EQ(j.at("bos_token"), tokens[1]);
  EXPECT_EQ(j.at("eos_token"), tokens[2]);
  EXPECT_EQ(j.at("add_bos_token"), true);
  EXPECT_EQ(j.at("model_max_length"), 99);
  const GenerationConfig g = load_generation_config(path);
  EXPECT_EQ(g.eos_ids, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(g.sample.temperature, 0.7);
  EXPECT_EQ(g.sample.top_k, 20);
  EXPECT_EQ(g.describe(), "temperature 0.7, top-k 20");
  EXPECT_EQ(companion_text(path, "merges.txt"), std::nullopt);

  GgufFile several = with_tokenizer("qwen2");
  several.text("tokenizer.chat_template", "a");
  several.texts("tokenizer.chat_templates", {"tools"});
  several.text("tokenizer.chat_template.tools", "b");
  const auto list = nlohmann::json::parse(*companion_text(write(several), "tokenizer_config.json"));
  EXPECT_EQ(list.at("chat_template").at(1).at("name"), "tools");

  GgufFile bad = with_tokenizer("qwen2");
  bad.u32("tokenizer.ggml.eos_token_id", 1 << 20);
  EXPECT_THROW(companion_text(write(bad), "tokenizer_config.json"), FormatError);
  GgufFile no_number = with_tokenizer("qwen2");
  no_number.text("general.architecture", "qwen2");
  no_number.u32("qwen2.block_count", 1);
  no_number.f32("general.sampling.temp", std::numeric_limits<float>::quiet_NaN());
  EXPECT_THROW(load_generation_config(write(no_number)), FormatError);
}

// --model x.gguf: everything comes from the file, whatever lies beside it.
TEST_F(GgufTexts, AModelIsFoundWithNothingBesideIt) {
  GgufFile file = gguf_of_directory(golden_dir() / "qwen2_tied");
  add_tokenizer(file, mini_tokenizer_text(), "qwen2");
  const auto path = write(file, "x.gguf");
  ModelOptions o;
  o.model = path;
  const auto all_of_it = [&] {
    const ModelPaths p = resolve_model(o, TokenizerNeed::required);
    EXPECT_EQ(p.weights, path);
    EXPECT_EQ(p.config, path);
    EXPECT_EQ(p.tokenizer, path);
    EXPECT_EQ(resolve_tokenizer(o), path);
  };
  all_of_it();
  replace_file(dir_.file("config.json"), "{}");  // of another model
  all_of_it();
  o.model = dir_.path();  // the only weights there
  all_of_it();
  o.tokenizer = dir_.file("config.json");  // named, so it wins
  EXPECT_EQ(resolve_model(o, TokenizerNeed::required).tokenizer, o.tokenizer);

  GgufFile without = gguf_of_directory(golden_dir() / "qwen2_tied");
  o = {};
  o.model = write(without, "y.gguf");
  EXPECT_EQ(resolve_model(o, TokenizerNeed::optional).tokenizer, "");
}

}  // namespace
}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// A GGUF as a model: the same config and the same weights as the directory it was made of.
#include "model/gguf_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/half.h"
#include "model/config.h"
#include "model/params.h"
#include "model/same_matrix.h"
#include "support/gguf_model.h"
#include "support/golden.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

class GgufModel : public testing::Test {
 protected:
  std::filesystem::path write(const GgufFile& file) {
    file.write(dir_.file("m.gguf"));
    return dir_.file("m.gguf");
  }
  std::string refusal(const GgufFile& file) {
    const auto path = write(file);
    try {
      load_config(path);
      open_model_source(path);
    } catch (const FormatError& e) {
      return e.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
  }
  TemporaryDirectory dir_{"gguf-model"};
};

void expect_same_config(const Config& a, const Config& b) {
  EXPECT_EQ(a.C, b.C);
  EXPECT_EQ(a.L, b.L);
  EXPECT_EQ(a.Hq, b.Hq);
  EXPECT_EQ(a.Hkv, b.Hkv);
  EXPECT_EQ(a.D, b.D);
  EXPECT_EQ(a.F, b.F);
  EXPECT_EQ(a.V, b.V);
  EXPECT_EQ(a.rms_eps, b.rms_eps);
  EXPECT_EQ(a.qk_norm, b.qk_norm);
  EXPECT_EQ(a.qkv_bias, b.qkv_bias);
  EXPECT_EQ(a.tied, b.tied);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.rope.kind, b.rope.kind);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.rope.factor, b.rope.factor);
  EXPECT_EQ(a.rope.original_positions, b.rope.original_positions);
  EXPECT_EQ(a.rope.attention_factor, b.rope.attention_factor);
}

TEST_F(GgufModel, HasTheConfigAndTheWeightsItWasMadeOf) {
  for (const char* family :
       {"qwen3_tied", "qwen3_untied", "qwen2_tied", "qwen2_untied", "llama_tied"}) {
    SCOPED_TRACE(family);
    const auto from = golden_dir() / family;
    const auto path = write(gguf_of_directory(from));
    expect_same_config(load_config(path), load_config(from / "config.json"));
    const auto gguf = open_model_source(path), directory = open_tensor_source(from);
    EXPECT_EQ(gguf->tensors().size(), directory->tensors().size());
    for (const TensorInfo& t : directory->tensors()) {
      EXPECT_EQ(gguf->at(t.name).shape, t.shape) << t.name;
      EXPECT_EQ(read_all<float>(*gguf, t.name), read_all<float>(*directory, t.name)) << t.name;
    }
  }
}

// Rows of q and k are put apart for any range of bytes, not only for whole tensors.
TEST_F(GgufModel, LlamaRowsArePutApartInAnyRange) {
  const auto from = golden_dir() / "llama_tied";
  const auto gguf = open_model_source(write(gguf_of_directory(from)));
  const auto directory = open_tensor_source(from);
  const std::string name = "model.layers.0.self_attn.k_proj.weight";
  const TensorInfo &a = gguf->at(name), &b = directory->at(name);
  for (uint64_t at = 0; at < a.n_bytes; at += 997) {
    const auto n = size_t(std::min<uint64_t>(1501, a.n_bytes - at));
    std::vector<std::byte> x(n), y(n);
    gguf->read(a, at, x);
    directory->read(b, at, y);
    ASSERT_EQ(x, y) << at;
  }
}

TEST_F(GgufModel, RopeScaling) {
  const auto plain = gguf_of_directory(golden_dir() / "llama_tied");
  GgufFile yarn = plain;
  yarn.text("llama.rope.scaling.type", "yarn");
  yarn.f32("llama.rope.scaling.factor", 4);
  yarn.u32("llama.rope.scaling.original_context_length", 64);
  Config c = load_config(write(yarn));
  EXPECT_EQ(c.rope.kind, RopeKind::yarn);
  EXPECT_EQ(c.rope.factor, 4);
  EXPECT_EQ(c.rope.original_positions, 64);
  EXPECT_EQ(c.rope.attention_factor, yarn_attention_factor(4, 0, 0));

  GgufFile linear = plain;
  linear.text("llama.rope.scaling.type", "linear");
  linear.f32("llama.rope.scaling.factor", 2.5f);
  c = load_config(write(linear));
  EXPECT_EQ(c.rope.kind, RopeKind::linear);
  EXPECT_EQ(c.rope.factor, 2.5);

  GgufFile none = plain;
  none.text("llama.rope.scaling.type", "none");
  EXPECT_EQ(load_config(write(none)).rope.kind, RopeKind::standard);

  // Llama 3's frequencies are a tensor of what each is divided by.
  const Config base = load_config(write(plain));
  std::vector<float> divisors;
  for (int64_t i = 0; i < base.D / 2; ++i) {
    const double length = 2 * M_PI * std::pow(base.rope.theta, 2.0 * double(i) / double(base.D));
    const double smooth = std::clamp((8192 / length - 1) / 3, 0.0, 1.0);
    divisors.push_back(float(1 / ((1 - smooth) / 32 + smooth)));
  }
  GgufFile llama3 = plain;
  llama3.add_f32("rope_freqs.weight", {divisors.size()}, divisors);
  if (divisors.back() == 32) {  // the toy's slowest pair is slow enough to show the factor
    c = load_config(write(llama3));
    EXPECT_EQ(c.rope.kind, RopeKind::llama3);
    EXPECT_EQ(c.rope.factor, 32);
    EXPECT_EQ(c.rope.original_positions, 8192);
    EXPECT_EQ(open_model_source(dir_.file("m.gguf"))->find("rope_freqs.weight"), nullptr);
  }
  divisors[0] = 1.5f;
  GgufFile other = plain;
  other.add_f32("rope_freqs.weight", {divisors.size()}, divisors);
  EXPECT_NE(refusal(other).find("rope_freqs.weight is not that of Llama 3"), std::string::npos);
}

TEST_F(GgufModel, RefusesByName) {
  const auto broken = [&](auto&& change) {
    GgufFile file = gguf_of_directory(golden_dir() / "llama_tied");
    change(file);
    return refusal(file);
  };
  EXPECT_NE(broken([](GgufFile& f) {
              f.add_f32("blk.0.attn_output.bias", {1}, {1});
            }).find("blk.0.attn_output.bias"),
            std::string::npos);
  EXPECT_NE(broken([](GgufFile& f) {
              f.add_f32("blk.0.ffn_gate_inp.weight", {1}, {1});
            }).find("blk.0.ffn_gate_inp.weight"),
            std::string::npos);
  EXPECT_NE(broken([](GgufFile& f) { f.u32("llama.expert_count", 8); }).find("experts"),
            std::string::npos);
  EXPECT_NE(broken([](GgufFile& f) { f.u32("llama.rope.dimension_count", 2); }).find("rotated"),
            std::string::npos);
  EXPECT_NE(broken([](GgufFile& f) { f.u32("llama.attention.value_length", 2); }).find("values"),
            std::string::npos);
  EXPECT_NE(
      broken([](GgufFile& f) { f.u32("llama.attention.sliding_window", 512); }).find("window"),
      std::string::npos);
  GgufFile gemma;
  gemma.text("general.architecture", "gemma3");
  gemma.u32("gemma3.block_count", 1);
  EXPECT_NE(refusal(gemma).find("architecture 'gemma3' is not supported, only qwen2, llama, qwen3"),
            std::string::npos);
}

// What no model has is refused where it is read, with the place in the file.
TEST_F(GgufModel, AbsurdNumbersAreRefusedWithTheirPlace) {
  const GgufFile good = gguf_of_directory(golden_dir() / "llama_tied");
  const auto with = [&](const std::string& key, const std::string& value) {
    std::string bytes = good.bytes();
    const std::string name = gguf_string(key);
    const size_t at = bytes.find(name) + name.size() + 4;  // behind the type
    bytes.replace(at, value.size(), value);
    write_text_file_atomic(dir_.file("m.gguf"), bytes);
    try {
      load_config(dir_.file("m.gguf"));
    } catch (const FormatError& e) {
      const std::string why = e.what();
      EXPECT_NE(why.find("'" + key + "' is "), std::string::npos) << why;
      EXPECT_NE(why.find(fmt::format("(offset {})", at)), std::string::npos) << why;
      return why;
    }
    ADD_FAILURE() << key << " was not refused";
    return std::string();
  };
  for (const char* key : {"block_count", "embedding_length", "feed_forward_length",
                          "attention.head_count", "attention.head_count_kv", "context_length"}) {
    for (const uint32_t value : {0u, 0xffffffffu}) {
      with(fmt::format("llama.{}", key), little_endian(value));
    }
  }
  for (const char* key : {"attention.layer_norm_rms_epsilon", "rope.freq_base"}) {
    for (const float value : {0.0f, -1.0f, INFINITY, NAN}) {
      with(fmt::format("llama.{}", key), little_endian(value));
    }
  }
  EXPECT_NE(with("llama.block_count", little_endian(5000u)).find("is 5000, expected 1..4096"),
            std::string::npos);
  GgufFile token = good;
  token.u32("tokenizer.ggml.eos_token_id", 1 << 20);
  EXPECT_NE(refusal(token).find("'tokenizer.ggml.eos_token_id' is 1048576, expected 0.."),
            std::string::npos);
}

TEST_F(GgufModel, WithoutBlocksItIsABag) {
  GgufFile bag;
  bag.text("general.architecture", "anything");  // the usual writers always put one there
  bag.add_f32("any.name", {2}, {1, 2});
  EXPECT_NE(open_model_source(write(bag))->find("any.name"), nullptr);
}

TEST_F(GgufModel, NamesOfTensors) {
  EXPECT_EQ(gguf_tensor_name("blk.12.attn_q.bias"), "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(gguf_tensor_name("output.weight"), kHeadName);
  for (const char* name : {"blk.00.attn_q.weight", "blk..attn_q.weight", "blk.1.attn_q",
                           "blk.1.attn_q.scale", "blk.1attn_q.weight", "blk.-1.attn_q.weight",
                           "blk.99999999999.attn_q.weight", "blk.", "", "token_embd.bias"}) {
    EXPECT_EQ(gguf_tensor_name(name), "") << name;
  }
}

// One matrix at two precisions: F32 and Q8_0 of the same values.
class GgufTied : public GgufModel {
 protected:
  // `head` from the embedding's values.
  GgufFile file_with_head(auto&& head) {
    GgufFile file = gguf_of_directory(golden_dir() / "qwen3_tied");
    const auto from = open_tensor_source(golden_dir() / "qwen3_tied");
    embed_ = read_all<float>(*from, std::string(kEmbedName));
    shape_ = from->at(kEmbedName).shape;
    std::vector<float> values = head(embed_);
    std::string blocks;
    for (size_t i = 0; i < values.size(); i += 32) blocks += q8_0_block(&values[i]);
    file.add("output.weight", {uint64_t(shape_[1]), uint64_t(shape_[0])}, 8, blocks);
    return file;
  }
  std::vector<float> embed_;
  std::vector<int64_t> shape_;
};

TEST_F(GgufTied, IsSeenByItsValues) {
  const auto path = write(file_with_head([](std::vector<float> x) { return x; }));
  EXPECT_TRUE(load_config(path).tied);
  // Inference has both as they are, training has the finer one.
  const auto stored = open_model_source(path);
  EXPECT_NE(stored->find(kHeadName), nullptr);
  EXPECT_NE(read_all<float>(*stored, std::string(kHeadName)), embed_);
  const auto once = open_model_source(path, TiedMatrix::once);
  EXPECT_EQ(once->find(kHeadName), nullptr);
  EXPECT_EQ(read_all<float>(*once, std::string(kEmbedName)), embed_);
}

TEST_F(GgufTied, AnotherHeadIsUntied) {
  const auto path = write(file_with_head([](std::vector<float> x) {
    std::ranges::rotate(x, x.begin() + 1);
    return x;
  }));
  EXPECT_FALSE(load_config(path).tied);
  EXPECT_NE(open_model_source(path, TiedMatrix::once)->find(kHeadName), nullptr);
}

}  // namespace
}  // namespace nibble::test

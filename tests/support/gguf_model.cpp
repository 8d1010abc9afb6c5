// SPDX-License-Identifier: MIT
#include "support/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/half.h"
#include "formats/tensor_source.h"

namespace nibble::test {
namespace {

using nlohmann::json;

// Hugging Face's name of a part of a block, and GGUF's.
constexpr std::pair<const char*, const char*> kParts[] = {
    {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"}};

std::string gguf_name(std::string name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  name.replace(0, std::string("model.layers").size(), "blk");
  for (const auto& [from, to] : kParts) {
    const size_t at = name.find(from);
    if (at != std::string::npos) return name.replace(at, std::string(from).size(), to);
  }
  return name;
}

// [heads, 2, D/2, width] -> [heads, D/2, 2, width]
std::vector<float> side_by_side(const std::vector<float>& x, size_t heads, size_t width) {
  const size_t rows = x.size() / width, d = rows / heads, half = d / 2;
  std::vector<float> out(x.size());
  for (size_t h = 0; h < heads; ++h) {
    for (size_t part = 0; part < 2; ++part) {
      for (size_t i = 0; i < half; ++i) {
        std::copy_n(&x[(h * d + part * half + i) * width], width,
                    &out[(h * d + i * 2 + part) * width]);
      }
    }
  }
  return out;
}

}  // namespace

GgufFile gguf_of_directory(const std::filesystem::path& directory) {
  const json c = json::parse(read_text_file(directory / "config.json"));
  const std::string arch = c.at("model_type");
  const auto key = [&](const char* name) { return arch + "." + name; };
  const uint32_t heads = c.at("num_attention_heads"), kv = c.at("num_key_value_heads");
  GgufFile file;
  file.text("general.architecture", arch);
  file.u32(key("block_count"), c.at("num_hidden_layers"));
  file.u32(key("context_length"), c.at("max_position_embeddings"));
  file.u32(key("embedding_length"), c.at("hidden_size"));
  file.u32(key("feed_forward_length"), c.at("intermediate_size"));
  file.u32(key("attention.head_count"), heads);
  file.u32(key("attention.head_count_kv"), kv);
  if (c.contains("head_dim")) file.u32(key("attention.key_length"), c.at("head_dim"));
  file.f32(key("attention.layer_norm_rms_epsilon"), c.at("rms_norm_eps"));
  const json& rope = c.contains("rope_parameters") ? c.at("rope_parameters") : c;
  file.f32(key("rope.freq_base"), rope.at("rope_theta"));

  const auto source = open_tensor_source(directory);
  for (const TensorInfo& t : source->tensors()) {
    std::vector<float> x(size_t(t.numel()));
    source->read(t, 0, std::as_writable_bytes(std::span(x)));
    const bool q = t.name.find("q_proj") != std::string::npos;
    const bool k = t.name.find("k_proj") != std::string::npos;
    const size_t width = t.shape.size() == 2 ? size_t(t.shape[1]) : 1;
    if (arch == "llama" && (q || k)) x = side_by_side(x, q ? heads : kv, width);
    file.add_f32(gguf_name(t.name), {t.shape.rbegin(), t.shape.rend()}, x);
  }
  return file;
}

void add_tokenizer(GgufFile& file, const std::string& text, const std::string& pre) {
  const json t = json::parse(text);
  std::map<int64_t, std::pair<std::string, int32_t>> by_id;  // token, type
  for (const auto& [token, id] : t.at("model").at("vocab").items()) by_id[id] = {token, 1};
  for (const json& a : t.at("added_tokens")) {
    by_id[a.at("id")] = {a.at("content"), a.at("special").get<bool>() ? 3 : 4};
  }
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  for (const auto& [id, token] : by_id) {
    tokens.push_back(token.first);
    types.push_back(token.second);
  }
  for (const json& m : t.at("model").at("merges")) {
    merges.push_back(m.is_string() ? m.get<std::string>()
                                   : m[0].get<std::string>() + " " + m[1].get<std::string>());
  }
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", pre);
  file.texts("tokenizer.ggml.tokens", tokens);
  file.integers("tokenizer.ggml.token_type", types);
  file.texts("tokenizer.ggml.merges", merges);
}

std::string q8_0_block(const float* x) {
  float amax = 0;
  for (int i = 0; i < 32; ++i) amax = std::max(amax, std::abs(x[i]));
  const f16_t d = to_f16(amax / 127);
  std::string s = little_endian(d.bits);
  const float scale = to_float(d);
  for (int i = 0; i < 32; ++i) {
    s += char(int8_t(scale > 0 ? std::clamp(std::round(x[i] / scale), -127.0f, 127.0f) : 0));
  }
  return s;
}

}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// config.json from the metadata of a GGUF.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/config.h"
#include "model/gguf_model.h"
#include "model/rope.h"
#include "model/same_matrix.h"

namespace nibble {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct GgufFamily {
  std::string_view architecture;  // the GGUF's name, and Hugging Face's model_type
  std::string_view model_class;
  bool pairs_adjacent;  // rows of q and k: see gguf_pairs_adjacent()
};
constexpr GgufFamily kGgufFamilies[] = {{"qwen2", "Qwen2ForCausalLM", false},
                                        {"llama", "LlamaForCausalLM", true},
                                        {"qwen3", "Qwen3ForCausalLM", false}};

const GgufFamily& gguf_family(const GgufMetadata& m) {
  const std::string& arch = m.text("general.architecture");
  std::string known;
  for (const GgufFamily& f : kGgufFamilies) {
    if (f.architecture == arch) return f;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", f.architecture);
  }
  throw_format("{}: the architecture '{}' is not supported, only {}", m.where(), arch, known);
}

// The metadata has f32 for what config.json says in short decimals: 1e-06 instead of 9.99e-07.
double short_decimal(double x) {
  return double(float(x)) == x ? std::stod(fmt::format("{}", float(x))) : x;
}

class ConfigMaker {
 public:
  explicit ConfigMaker(const GgufSource& source)
      : source_(source), m_(source.values()), arch_(m_.text("general.architecture")) {}

  std::string text() {
    const GgufFamily& family = gguf_family(m_);
    refuse_features();
    using Most = ConfigLimits;
    const int64_t width = integer("embedding_length", Most::kWidth);
    const int64_t heads = integer("attention.head_count", Most::kHeads);
    OrderedJson j;
    j["architectures"] = {family.model_class};
    j["model_type"] = arch_;
    j["hidden_size"] = width;
    j["num_hidden_layers"] = integer("block_count", Most::kLayers);
    j["num_attention_heads"] = heads;
    j["num_key_value_heads"] = find("attention.head_count_kv", Most::kHeads).value_or(heads);
    j["head_dim"] = head_width(width / heads);
    j["intermediate_size"] = integer("feed_forward_length", Most::kFeedForward);
    j["vocab_size"] = embedding().shape[0];
    j["max_position_embeddings"] = integer("context_length", Most::kPositions);
    j["rms_norm_eps"] = short_decimal(positive("attention.layer_norm_rms_epsilon"));
    j["hidden_act"] = "silu";
    add_rope(j, int64_t(j["head_dim"]));
    j["tie_word_embeddings"] = tied();
    if (m_.find_integer(key("attention.sliding_window")).value_or(0) > 0) {
      j["use_sliding_window"] = true;
    }
    const int64_t experts = m_.find_integer(key("expert_count")).value_or(0);
    if (experts > 0) j["num_experts"] = experts;
    const int64_t last_id = embedding().shape[0] - 1;
    for (const char* token : {"bos_token_id", "eos_token_id"}) {
      const std::string name = fmt::format("tokenizer.ggml.{}", token);
      if (const auto id = m_.find_integer(name, 0, last_id)) j[token] = *id;
    }
    return j.dump(2) + "\n";
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  int64_t integer(std::string_view name, int64_t most) const {
    return m_.integer(key(name), 1, most);
  }
  std::optional<int64_t> find(std::string_view name, int64_t most) const {
    return m_.find_integer(key(name), 1, most);
  }
  double positive(std::string_view name) const {
    const double x = m_.number(key(name));
    if (!(x > 0)) m_.refuse(key(name), "a positive number");
    return x;
  }

  void refuse_features() const {
    for (const auto& [name, value] : m_.values()) {
      if (name.ends_with(".rope.dimension_sections") || name.ends_with("_swa")) {
        throw_format("{}: '{}' is not supported", m_.where(), name);
      }
    }
  }

  const TensorInfo& embedding() const {
    const TensorInfo* t = source_.find("token_embd.weight");
    if (!t || t->shape.size() != 2) {
      throw_format("{}: there is no matrix token_embd.weight", m_.where());
    }
    return *t;
  }

  int64_t head_width(int64_t otherwise) const {
    constexpr int64_t kMost = ConfigLimits::kHeadWidth;
    const int64_t width = find("attention.key_length", kMost).value_or(otherwise);
    const int64_t value = find("attention.value_length", kMost).value_or(width);
    const int64_t rotated = find("rope.dimension_count", kMost).value_or(width);
    if (value != width) {
      throw_format("{}: heads of {} for keys and {} for values are not supported", m_.where(),
                   width, value);
    }
    if (rotated != width) {
      throw_format("{}: {} of {} elements of a head are rotated; only whole heads are supported",
                   m_.where(), rotated, width);
    }
    return width;
  }

  bool tied() const {
    const TensorInfo* head = source_.find("output.weight");
    return !head || same_within_blocks(source_, embedding(), *head);
  }

  void add_rope(OrderedJson& j, int64_t head_width) const {
    constexpr double kDefaultBase = 1e4;  // what a GGUF without one means
    const bool has_base = m_.has(key("rope.freq_base"));
    j["rope_theta"] = has_base ? short_decimal(positive("rope.freq_base")) : kDefaultBase;
    OrderedJson scaling;
    const std::string* kind = m_.find_text(key("rope.scaling.type"));
    if (source_.find("rope_freqs.weight")) {
      scaling = llama3(head_width, double(j["rope_theta"]));
    } else if (const auto old = m_.find_number(key("rope.scale_linear"))) {
      if (*old != 1) scaling = {{"rope_type", "linear"}, {"factor", short_decimal(*old)}};
    }
    if (kind && *kind != "none") {
      if (!scaling.is_null()) {
        throw_format("{}: rope scaling '{}' comes on top of another", m_.where(), *kind);
      }
      scaling = {{"rope_type", *kind}, {"factor", short_decimal(positive("rope.scaling.factor"))}};
      if (*kind == "yarn") add_yarn(scaling);
    }
    if (!scaling.is_null()) j["rope_scaling"] = scaling;
  }

  void add_yarn(OrderedJson& scaling) const {
    const auto copy = [&](const char* to, std::string_view from) {
      if (const auto x = m_.find_number(key(from))) scaling[to] = short_decimal(*x);
    };
    if (const auto n = find("rope.scaling.original_context_length", ConfigLimits::kPositions)) {
      scaling["original_max_position_embeddings"] = *n;
    }
    copy("beta_fast", "rope.scaling.yarn_beta_fast");
    copy("beta_slow", "rope.scaling.yarn_beta_slow");
    for (const std::string_view other :
         {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
          "rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_ext_factor"}) {
      if (m_.has(key(other))) throw_format("{}: '{}' is not supported", m_.where(), key(other));
    }
  }

  // rope_freqs.weight [D/2] has what each frequency is divided by. Llama 3 makes it of four
  // numbers, of which only the largest divisor shows; the others are those that all its models
  // have, unless nibble wrote down which they were. What they give must be what is stored.
  OrderedJson llama3(int64_t head_width, double theta) const {
    const auto noted = [&](std::string_view name, double usual) {
      const auto x = m_.find_number(fmt::format("nibble.rope.{}", name));
      return x && *x > 0 && *x < 1e18 ? short_decimal(*x) : usual;
    };
    const double low = noted("low_freq_factor", 1), high = noted("high_freq_factor", 4);
    const double positions = noted("original_positions", 8192);
    const TensorInfo& t = source_.at("rope_freqs.weight");
    const int64_t pairs = head_width / 2;
    if (t.dtype != DType::f32 || t.shape != std::vector<int64_t>{pairs}) {
      throw_format("{}: rope_freqs.weight is {}, expected f32[{}]", m_.where(), t.describe(),
                   pairs);
    }
    std::vector<float> stored(static_cast<size_t>(pairs));
    source_.read(t, 0, std::as_writable_bytes(std::span(stored)));
    RopeSpec plain, scaled;
    plain.theta = scaled.theta = theta;
    scaled.kind = RopeKind::llama3;
    scaled.factor = noted("factor", short_decimal(double(*std::ranges::max_element(stored))));
    scaled.original_positions = positions;
    scaled.low_freq_factor = low, scaled.high_freq_factor = high;
    const RopeFrequencies before = rope_frequencies(plain, head_width);
    const RopeFrequencies after = rope_frequencies(scaled, head_width);
    for (size_t i = 0; i < stored.size(); ++i) {
      const double expected = before.turns[i] / after.turns[i];
      if (!(std::abs(expected - double(stored[i])) <= 1e-4 * expected)) {
        throw_format(
            "{}: rope_freqs.weight is not that of Llama 3: element {} is {}, expected {:.6g}",
            m_.where(), i, stored[i], expected);
      }
    }
    return {{"rope_type", "llama3"},
            {"factor", scaled.factor},
            {"low_freq_factor", low},
            {"high_freq_factor", high},
            {"original_max_position_embeddings", int64_t(positions)}};
  }

  const GgufSource& source_;
  const GgufMetadata& m_;
  std::string arch_;
};

}  // namespace

bool is_gguf_model(const GgufMetadata& m) {
  const std::string* arch = m.find_text("general.architecture");
  return arch && m.has(*arch + ".block_count");
}

bool gguf_pairs_adjacent(const GgufMetadata& m) { return gguf_family(m).pairs_adjacent; }

std::string gguf_config_json(const GgufSource& source) { return ConfigMaker(source).text(); }

}  // namespace nibble

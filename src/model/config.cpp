// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "model/gguf_model.h"
#include "model/params.h"

namespace nibble {
namespace {

using nlohmann::json;

// Reads typed fields of one config.json and words the errors.
class Reader {
 public:
  Reader(const json& j, const std::string& where) : j_(j), where_(where) {}

  bool has(const char* key) const { return j_.contains(key) && !j_.at(key).is_null(); }

  int64_t integer(const char* key, int64_t least, int64_t most) const {
    if (!has(key)) throw_format("{}: config is missing the field '{}'", where_, key);
    const json& v = j_.at(key);
    if (!v.is_number_integer())
      throw_format("{}: '{}' must be an integer, found {}", where_, key, v.dump());
    const bool too_large = v.is_number_unsigned() && v.get<uint64_t>() > uint64_t(most);
    if (too_large || v.get<int64_t>() < least || v.get<int64_t>() > most) {
      throw_format("{}: '{}' is {}, expected {}..{}", where_, key, v.dump(), least, most);
    }
    return v.get<int64_t>();
  }

  double positive(const json& object, const char* key) const {
    if (!object.contains(key) || !object.at(key).is_number()) {
      throw_format("{}: config is missing the number '{}'", where_, key);
    }
    const double x = object.at(key).get<double>();
    if (!(x > 0) || !std::isfinite(x))
      throw_format("{}: '{}' is {}, expected a positive number", where_, key, x);
    return x;
  }
  double positive(const char* key) const { return positive(j_, key); }

  bool boolean(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!j_.at(key).is_boolean()) throw_format("{}: '{}' must be true or false", where_, key);
    return j_.at(key).get<bool>();
  }

  // Fields whose other values change the mathematics.
  void refuse_unless(const char* key, const json& wanted) const {
    if (has(key) && j_.at(key) != wanted) {
      throw_format("{}: '{}' is {}, but only {} is supported", where_, key, j_.at(key).dump(),
                   wanted.dump());
    }
  }

  const json& at(const char* key) const { return j_.at(key); }

 private:
  const json& j_;
  const std::string& where_;
};

// The object that describes rotary embedding, of either generation of the file.
class RopeReader {
 public:
  RopeReader(const json& object, const std::string& where) : o_(object), where_(where) {}

  bool has(const char* key) const { return o_.contains(key) && !o_.at(key).is_null(); }
  std::string kind() const {
    const char* key = has("rope_type") ? "rope_type" : "type";
    if (!has(key)) return "default";
    for (const char* known : {"default", "linear", "llama3", "yarn"}) {
      if (o_.at(key) == known) return known;
    }
    throw_format("{}: rope of the kind {} is not supported, only default, linear, llama3 and yarn",
                 where_, o_.at(key).dump());
  }
  // Without a fallback there must be one.
  double number(const char* key, std::optional<double> fallback = {}) const {
    if (!has(key) && fallback) return *fallback;
    if (!has(key) || !o_.at(key).is_number()) {
      throw_format("{}: rope is missing the number '{}'", where_, key);
    }
    const double x = o_.at(key).get<double>();
    if (!(x > 0) || !(x <= kMost))
      throw_format("{}: rope's '{}' is {}, expected a positive number", where_, key, x);
    return x;
  }
  bool boolean(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!o_.at(key).is_boolean())
      throw_format("{}: rope's '{}' must be true or false", where_, key);
    return o_.at(key).get<bool>();
  }
  void refuse_part_of_a_head() const {
    if (has("partial_rotary_factor") && o_.at("partial_rotary_factor") != 1.0) {
      throw_format("{}: 'partial_rotary_factor' is {}, but only whole heads are rotated", where_,
                   o_.at("partial_rotary_factor").dump());
    }
  }

 private:
  static constexpr double kMost = 1e18;
  const json& o_;
  const std::string& where_;
};

// What sets the families apart; everything else follows from Config.
struct Family {
  std::string_view model_type;
  bool qk_norm, qkv_bias;
  bool attention_bias;  // what 'attention_bias' must be where it is given
  int64_t head_dim;     // where the config has none; 0: hidden_size / num_attention_heads
  double rope_theta;    // where the config has none; 0: it must have one
};
constexpr Family kFamilies[] = {
    {"qwen3", true, false, false, 128, 0},
    {"qwen2", false, true, true, 0, 0},
    {"llama", false, false, false, 0, 1e4},  // the first generation's files do not name it
};

const Family& read_family(const Reader& r, const std::string& where) {
  // Files from before 'model_type' was asked for are of the first family.
  if (!r.has("model_type")) return kFamilies[0];
  std::string known;
  for (const Family& f : kFamilies) {
    if (r.at("model_type") == f.model_type) return f;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", f.model_type);
  }
  throw_format("{}: 'model_type' is {}, but only these families are supported: {}", where,
               r.at("model_type").dump(), known);
}

// How the weights of others' checkpoints are packed: NVFP4 of two makers is read, by the names of
// its tensors (formats/nvfp4_names.h), so nothing of this is needed but that it is nothing else.
void check_quantization(const json& q, const std::string& where) {
  const auto text = [](const json& o, const char* key) -> std::string {
    return o.is_object() && o.contains(key) && o.at(key).is_string() ? o.at(key) : "";
  };
  const std::string method = text(q, "quant_method"), algorithm = text(q, "quant_algo");
  bool nvfp4 = false;
  if (method == "modelopt") nvfp4 = algorithm == "NVFP4" || algorithm == "W4A16_NVFP4";
  if (method == "compressed-tensors") {
    constexpr const char* kFormat = "nvfp4-pack-quantized";
    nvfp4 = text(q, "format") == kFormat;
    if (q.contains("config_groups") && q.at("config_groups").is_object()) {
      for (const auto& [name, group] : q.at("config_groups").items()) {
        const std::string own = text(group, "format");
        nvfp4 = own.empty() ? nvfp4 : own == kFormat;
        if (!nvfp4) break;
      }
    }
  }
  if (nvfp4) return;
  throw_format(
      "{}: 'quantization_config' of '{}'{}: only NVFP4 of compressed-tensors "
      "(nvfp4-pack-quantized) "
      "and of ModelOpt (NVFP4, W4A16_NVFP4) is read; use the unquantised checkpoint",
      where, method, algorithm.empty() ? "" : fmt::format(" ({})", algorithm));
}

// A window over the keys changes what is computed only where a layer has it.
void refuse_windows(const Reader& r, int64_t layers, const std::string& where) {
  if (r.has("layer_types")) {
    if (!r.at("layer_types").is_array()) throw_format("{}: 'layer_types' must be a list", where);
    for (const json& type : r.at("layer_types")) {
      if (type != "full_attention") {
        throw_format("{}: 'layer_types' has {}, but only \"full_attention\" is supported", where,
                     type.dump());
      }
    }
    return;
  }
  const bool none =
      !r.boolean("use_sliding_window", false) ||
      (r.has("max_window_layers") && r.integer("max_window_layers", 0, INT32_MAX) >= layers);
  if (!none) {
    throw_format("{}: a sliding window ('use_sliding_window') is not supported", where);
  }
}

// The yarn of config.json; theta and factor are there already.
void read_yarn(const RopeReader& o, RopeSpec& rope, const std::string& where) {
  rope.beta_fast = o.number("beta_fast", 32), rope.beta_slow = o.number("beta_slow", 1);
  if (rope.beta_fast <= rope.beta_slow) {
    throw_format("{}: rope's 'beta_fast' {} must be above 'beta_slow' {}", where, rope.beta_fast,
                 rope.beta_slow);
  }
  rope.truncate = o.boolean("truncate", true);
  const double mscale = o.number("mscale", 0), all = o.number("mscale_all_dim", 0);
  rope.attention_factor =
      o.number("attention_factor", yarn_attention_factor(rope.factor, mscale, all));
}

RopeSpec read_rope(const Reader& r, const Family& family, int64_t max_positions,
                   const std::string& where) {
  RopeSpec rope;
  const char* key = r.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const bool has_object = r.has(key);
  if (has_object && !r.at(key).is_object()) throw_format("{}: '{}' must be an object", where, key);
  const json none = json::object();
  const RopeReader o(has_object ? r.at(key) : none, where);
  const std::string kind = o.kind();
  if (o.has("rope_theta")) {
    rope.theta = o.number("rope_theta");
  } else if (r.has("rope_theta") || family.rope_theta == 0) {
    rope.theta = r.positive("rope_theta");
  } else {
    rope.theta = family.rope_theta;
  }
  if (rope.theta <= 1)
    throw_format("{}: 'rope_theta' is {}, expected more than 1", where, rope.theta);
  o.refuse_part_of_a_head();
  if (kind == "default") return rope;
  rope.factor = o.number("factor");
  if (rope.factor < 1)
    throw_format("{}: rope's 'factor' is {}, expected 1 or more", where, rope.factor);
  if (kind == "linear") {
    rope.kind = RopeKind::linear;
    return rope;
  }
  rope.kind = kind == "llama3" ? RopeKind::llama3 : RopeKind::yarn;
  std::optional<double> original;
  if (rope.kind == RopeKind::yarn) original = double(max_positions);
  rope.original_positions = o.number("original_max_position_embeddings", original);
  if (rope.kind == RopeKind::yarn) {
    read_yarn(o, rope, where);
    return rope;
  }
  rope.low_freq_factor = o.number("low_freq_factor");
  rope.high_freq_factor = o.number("high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    throw_format("{}: 'high_freq_factor' {} must be above 'low_freq_factor' {}", where,
                 rope.high_freq_factor, rope.low_freq_factor);
  }
  return rope;
}

std::vector<int32_t> read_eos(const Reader& r, int64_t vocab, const std::string& where) {
  std::vector<int32_t> ids;
  if (!r.has("eos_token_id")) return ids;
  const json& eos = r.at("eos_token_id");
  for (const json& e : eos.is_array() ? eos : json::array({eos})) {
    if (!e.is_number_integer() || e.get<int64_t>() < 0 || e.get<int64_t>() >= vocab) {
      throw_format("{}: 'eos_token_id' holds {}, expected token ids below {}", where, e.dump(),
                   vocab);
    }
    ids.push_back(e.get<int32_t>());
  }
  return ids;
}

}  // namespace

Config parse_config(std::string_view text, const std::string& where) {
  json j;
  try {
    j = parse_json<json>(text);
  } catch (const json::exception& e) {
    throw_format("{}: not valid JSON: {}", where, e.what());
  }
  if (!j.is_object()) throw_format("{}: expected a JSON object", where);
  const Reader r(j, where);
  const Family& family = read_family(r, where);
  r.refuse_unless("hidden_act", "silu");
  r.refuse_unless("attention_bias", family.attention_bias);
  r.refuse_unless("mlp_bias", false);
  r.refuse_unless("partial_rotary_factor", 1.0);
  if (r.has("num_experts"))
    throw_format("{}: a mixture of experts ('num_experts') is not supported", where);
  if (r.has("quantization_config")) check_quantization(r.at("quantization_config"), where);

  Config c;
  c.C = r.integer("hidden_size", 1, ConfigLimits::kWidth);
  c.L = r.integer("num_hidden_layers", 1, ConfigLimits::kLayers);
  c.Hq = r.integer("num_attention_heads", 1, ConfigLimits::kHeads);
  c.Hkv = r.has("num_key_value_heads") ? r.integer("num_key_value_heads", 1, ConfigLimits::kHeads)
                                       : c.Hq;
  c.D = r.has("head_dim") ? r.integer("head_dim", 2, ConfigLimits::kHeadWidth)
        : family.head_dim ? family.head_dim
                          : c.C / c.Hq;
  c.F = r.integer("intermediate_size", 1, ConfigLimits::kFeedForward);
  c.V = r.integer("vocab_size", 1, ConfigLimits::kVocabulary);
  c.rms_eps = r.positive("rms_norm_eps");
  c.qk_norm = family.qk_norm, c.qkv_bias = family.qkv_bias;
  c.tied = r.boolean("tie_word_embeddings", false);
  c.max_positions = r.has("max_position_embeddings")
                        ? r.integer("max_position_embeddings", 1, ConfigLimits::kPositions)
                        : 32768;
  c.rope = read_rope(r, family, c.max_positions, where);
  refuse_windows(r, c.L, where);
  if (r.has("initializer_range")) c.initializer_range = r.positive("initializer_range");
  c.eos_ids = read_eos(r, c.V, where);
  if (c.Hq % c.Hkv != 0) {
    throw_format("{}: {} query heads cannot share {} key heads evenly", where, c.Hq, c.Hkv);
  }
  if (c.Hq / c.Hkv > 64) {
    throw_format("{}: {} query heads for each key head, at most 64 are supported", where,
                 c.Hq / c.Hkv);
  }
  if (c.D < 2 || c.D % 2 != 0)
    throw_format("{}: head_dim {} must be even and positive", where, c.D);
  return c;
}

std::string config_text(const std::filesystem::path& file) {
  if (looks_like_gguf(file)) return gguf_config_json(*open_gguf(file));
  return read_text_file(file, 16 << 20);
}

Config load_config(const std::filesystem::path& file) {
  return parse_config(config_text(file), file.string());
}

int64_t Config::parameter_count() const {
  int64_t n = 0;
  for (const ParamSpec& p : parameter_table(*this)) {
    if (p.slot == ParamSlot::head && tied) continue;
    n += p.numel();
  }
  return n;
}

}  // namespace nibble

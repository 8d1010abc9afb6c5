// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
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

double read_rope_theta(const Reader& r, const std::string& where) {
  const char* key = r.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (r.has(key)) {
    const json& rope = r.at(key);
    if (!rope.is_object()) throw_format("{}: '{}' must be an object", where, key);
    const char* type_key = rope.contains("rope_type") ? "rope_type" : "type";
    if (rope.contains(type_key) && rope.at(type_key) != "default") {
      throw_format("{}: rope scaling {} is not supported, only the default", where,
                   rope.at(type_key).dump());
    }
    if (rope.contains("rope_theta")) return r.positive(rope, "rope_theta");
  }
  return r.positive("rope_theta");
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
    j = json::parse(text);
  } catch (const json::exception& e) {
    throw_format("{}: not valid JSON: {}", where, e.what());
  }
  if (!j.is_object()) throw_format("{}: expected a JSON object", where);
  const Reader r(j, where);
  r.refuse_unless("model_type", "qwen3");
  r.refuse_unless("hidden_act", "silu");
  r.refuse_unless("attention_bias", false);
  r.refuse_unless("use_sliding_window", false);
  if (r.has("num_experts"))
    throw_format("{}: a mixture of experts ('num_experts') is not supported", where);
  if (r.has("quantization_config")) {
    throw_format(
        "{}: a checkpoint with 'quantization_config' is not supported; use the unquantised one",
        where);
  }

  Config c;
  c.C = r.integer("hidden_size", 1, 1 << 20);
  c.L = r.integer("num_hidden_layers", 1, 4096);
  c.Hq = r.integer("num_attention_heads", 1, 4096);
  c.Hkv = r.has("num_key_value_heads") ? r.integer("num_key_value_heads", 1, 4096) : c.Hq;
  c.D = r.has("head_dim") ? r.integer("head_dim", 2, 1024) : c.C / c.Hq;
  c.F = r.integer("intermediate_size", 1, 1 << 24);
  c.V = r.integer("vocab_size", 1, 1 << 24);
  c.rms_eps = r.positive("rms_norm_eps");
  c.rope_theta = read_rope_theta(r, where);
  c.tied = r.boolean("tie_word_embeddings", false);
  c.max_positions =
      r.has("max_position_embeddings") ? r.integer("max_position_embeddings", 1, 1 << 30) : 32768;
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

Config load_config(const std::filesystem::path& file) {
  return parse_config(read_text_file(file, 16 << 20), file.string());
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

// SPDX-License-Identifier: MIT
#include "runtime/generation_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "runtime/model_texts.h"

namespace nibble {
namespace {

using nlohmann::json;

class GenerationReader {
 public:
  GenerationReader(const json& j, const std::string& where) : j_(j), where_(where) {}

  bool has(const char* key) const { return j_.contains(key) && !j_.at(key).is_null(); }
  void number(const char* key, double least, double most, double& out) const {
    if (!has(key)) return;
    const json& v = j_.at(key);
    const double x = v.is_number() ? v.get<double>() : NAN;
    if (!(x >= least && x <= most)) {
      throw_format("{}: '{}' is {}, expected a number from {} to {}", where_, key, v.dump(), least,
                   most);
    }
    out = x;
  }
  bool boolean(const char* key) const {
    if (!has(key)) return false;
    if (!j_.at(key).is_boolean()) throw_format("{}: '{}' must be true or false", where_, key);
    return j_.at(key).get<bool>();
  }
  std::vector<int32_t> ids(const char* key) const {
    std::vector<int32_t> out;
    if (!has(key)) return out;
    const json& v = j_.at(key);
    for (const json& e : v.is_array() ? v : json::array({v})) {
      if (!e.is_number_integer() || e.get<int64_t>() < 0 || e.get<int64_t>() > INT32_MAX) {
        throw_format("{}: '{}' holds {}, expected token ids", where_, key, e.dump());
      }
      out.push_back(e.get<int32_t>());
    }
    return out;
  }

 private:
  const json& j_;
  const std::string& where_;
};

}  // namespace

std::string GenerationConfig::describe() const {
  const SampleOptions neutral;
  std::vector<std::string> parts;
  const auto add = [&](const char* name, auto value, auto otherwise) {
    if (value != otherwise) parts.push_back(fmt::format("{} {}", name, value));
  };
  add("temperature", sample.temperature, neutral.temperature);
  add("top-k", sample.top_k, neutral.top_k);
  add("top-p", sample.top_p, neutral.top_p);
  add("min-p", sample.min_p, neutral.min_p);
  add("repetition penalty", sample.repetition_penalty, neutral.repetition_penalty);
  return fmt::format("{}", fmt::join(parts, ", "));
}

GenerationConfig parse_generation_config(std::string_view text, const std::string& where) {
  json j;
  try {
    j = parse_json<json>(text);
  } catch (const json::exception& e) {
    throw_format("{}: not valid JSON: {}", where, e.what());
  }
  if (!j.is_object()) throw_format("{}: expected a JSON object", where);
  const GenerationReader r(j, where);
  GenerationConfig c;
  c.eos_ids = r.ids("eos_token_id");
  r.number("repetition_penalty", 1e-6, 1e6, c.sample.repetition_penalty);
  if (r.boolean("do_sample")) {
    c.sample.temperature = 1;
    r.number("temperature", 0, 1e6, c.sample.temperature);
    double k = 0;
    r.number("top_k", 0, 1 << 30, k);
    if (k != std::floor(k)) throw_format("{}: 'top_k' is {}, expected a whole number", where, k);
    c.sample.top_k = int64_t(k);
    r.number("top_p", 1e-9, 1, c.sample.top_p);
    r.number("min_p", 0, 1, c.sample.min_p);
  }
  if (!c.describe().empty()) c.source = where;
  return c;
}

GenerationConfig load_generation_config(const std::filesystem::path& config) {
  const std::filesystem::path place = place_of(config);
  const std::string name = "generation_config.json";
  const auto text = companion_text(place, name);
  if (!text) return {};
  const bool directory = std::filesystem::is_directory(place);
  return parse_generation_config(*text, (directory ? place / name : place).string());
}

void add_end_tokens(Config& config, const GenerationConfig& generation) {
  for (const int32_t id : generation.eos_ids) {
    if (id >= config.V) {
      throw_format("generation_config.json ends a reply with token {}, but the model has {}", id,
                   config.V);
    }
    if (std::ranges::find(config.eos_ids, id) == config.eos_ids.end()) config.eos_ids.push_back(id);
  }
}

SampleOptions SampleFlags::over(const GenerationConfig& defaults) const {
  const bool greedy = temperature && *temperature <= 0;
  SampleOptions s = greedy ? SampleOptions() : defaults.sample;
  s.temperature = temperature.value_or(s.temperature);
  s.top_k = top_k.value_or(s.top_k);
  s.top_p = top_p.value_or(s.top_p);
  s.min_p = min_p.value_or(s.min_p);
  s.repetition_penalty = repetition_penalty.value_or(s.repetition_penalty);
  s.seed = seed;
  return s;
}

void log_sampling(const SampleFlags& flags, const GenerationConfig& generation) {
  if (generation.source.empty()) return;
  GenerationConfig used = generation;
  used.sample = flags.over(generation);
  const std::string what = used.describe();
  log_info("sampling: {} (the model's own: {}, from {}; --temp 0 is greedy)",
           what.empty() ? "greedy" : what, generation.describe(), generation.source);
}

}  // namespace nibble

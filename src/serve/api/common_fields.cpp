// SPDX-License-Identifier: MIT
#include "serve/api/common_fields.h"

#include <charconv>
#include <random>

#include "core/json.h"
#include "serve/api/api_error.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostStops = 16, kMostStopBytes = 1024;

std::vector<std::string> read_stops(BodyFields& f) {
  const Json* const j = f.any("stop");
  if (!j) return {};
  std::vector<std::string> out;
  for (const Json& s : j->is_array() ? *j : Json::array({*j})) {
    if (!s.is_string() || s.get_ref<const std::string&>().empty() ||
        s.get_ref<const std::string&>().size() > kMostStopBytes) {
      throw_invalid("stop", "'stop' must be a string of 1 to {} bytes, or an array of them",
                    kMostStopBytes);
    }
    out.push_back(s.get<std::string>());
  }
  if (out.size() > kMostStops)
    throw_invalid("stop", "'stop' has {} texts, expected {} at most", out.size(), kMostStops);
  return out;
}

std::vector<std::pair<int32_t, float>> read_bias(BodyFields& f) {
  const Json* const j = f.any("logit_bias");
  if (!j) return {};
  if (!j->is_object())
    throw_invalid("logit_bias", "'logit_bias' must be an object of token ids and numbers");
  std::vector<std::pair<int32_t, float>> out;
  for (const auto& [name, value] : j->items()) {
    int32_t id = -1;
    const auto end = std::from_chars(name.data(), name.data() + name.size(), id);
    const double bias = value.is_number() ? value.get<double>() : 1e9;
    if (end.ec != std::errc() || end.ptr != name.data() + name.size() || id < 0 ||
        !(bias >= -100 && bias <= 100)) {
      throw_invalid("logit_bias",
                    "'logit_bias' must name token ids, with numbers from -100 to 100; found "
                    "\"{}\": {}",
                    name, value.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    out.emplace_back(id, float(bias));
  }
  return out;
}

uint64_t any_seed() {
  std::random_device device;
  return uint64_t(device()) << 32 | device();
}

}  // namespace

const Tokenizer& ServedModel::require_tokenizer() const {
  if (!tokenizer) {
    throw ApiError(400, "invalid_request_error",
                   "this model was started without a tokenizer: only /v1/completions with token "
                   "ids can be asked");
  }
  return *tokenizer;
}

StreamRequest CommonFields::request(std::vector<int32_t> prompt, int64_t choice) const {
  StreamRequest r;
  r.prompt = std::move(prompt);
  r.reply = reply;
  r.reply.sample.seed += uint64_t(choice);
  r.stop = stop;
  r.frequency_penalty = frequency_penalty;
  r.presence_penalty = presence_penalty;
  r.bias = bias;
  return r;
}

void check_model(BodyFields& f, const ServedModel& model) {
  const auto named = f.text("model");
  if (!named || *named == model.name) return;
  throw ApiError(
      404, "invalid_request_error",
      fmt::format("The model '{}' does not exist; this server has '{}'", *named, model.name),
      "model", "model_not_found");
}

CommonFields read_common_fields(BodyFields& f, const ServedModel& model) {
  CommonFields c;
  check_model(f, model);
  SampleOptions& s = c.reply.sample;
  s = model.sample;
  if (const auto t = f.number("temperature", 0, 2)) {
    // As --temp 0: the model's own sampling is put aside as a whole.
    if (*t == 0) s = SampleOptions();
    s.temperature = *t;
  }
  s.top_p = f.number("top_p", 0, 1).value_or(s.top_p);
  if (s.top_p == 0) {  // the likeliest alone
    s.top_p = 1;
    s.top_k = 1;
  }
  const auto top_k = f.integer("top_k", -1, INT32_MAX);
  if (top_k) s.top_k = std::max<int64_t>(0, *top_k);
  s.min_p = f.number("min_p", 0, 1).value_or(s.min_p);
  s.repetition_penalty = f.number("repetition_penalty", 0.01, 10).value_or(s.repetition_penalty);
  const auto seed = f.integer("seed", INT64_MIN, INT64_MAX);
  s.seed = seed ? uint64_t(*seed) : any_seed();
  c.frequency_penalty = f.number("frequency_penalty", -2, 2).value_or(0);
  c.presence_penalty = f.number("presence_penalty", -2, 2).value_or(0);
  c.bias = read_bias(f);
  c.stop = read_stops(f);
  if (!f.boolean("ignore_eos").value_or(false)) c.reply.stop_ids = model.stop_ids;
  c.reply.timeout_s = model.timeout_s;
  c.n = f.integer("n", 1, model.most_choices).value_or(1);
  c.stream = f.boolean("stream").value_or(false);
  if (const Json* const options = f.any("stream_options")) {
    if (!c.stream) throw_invalid("stream_options", "'stream_options' is about 'stream': true");
    BodyFields o(*options, "stream_options.");
    c.stream_usage = o.boolean("include_usage").value_or(false);
    o.pass("include_obfuscation");
    o.finish();
  }
  for (const char* name : {"user", "metadata", "service_tier", "safety_identifier",
                           "prompt_cache_key", "prompt_cache_retention"}) {
    f.pass(name);
  }
  return c;
}

}  // namespace nibble

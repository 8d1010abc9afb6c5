// SPDX-License-Identifier: MIT
#include "serve/api/service.h"

#include <algorithm>

#include "core/json.h"
#include "serve/api/api_error.h"
#include "serve/api/body_fields.h"
#include "serve/api/chat_reply.h"
#include "serve/api/completion_reply.h"
#include "serve/api/embedded_files.h"
#include "serve/api/metrics_text.h"
#include "serve/api/token_json.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kModels = "/v1/models";

}  // namespace

ApiResponse json_response(const Json& j) { return {200, "application/json", json_text(j), {}, {}}; }

ApiResponse error_response(const ApiError& e) {
  ApiResponse r{e.status(), "application/json", e.body(), {}, {}};
  if (e.retry_after_s > 0) r.headers.emplace_back("Retry-After", std::to_string(e.retry_after_s));
  return r;
}

std::string Service::methods(const std::string& path) {
  for (const char* p : {"/health", "/metrics", "/v1/models"}) {
    if (path == p) return "GET";
  }
  if (path.starts_with("/v1/models/") || find_file(api_files(), path)) return "GET";
  for (const char* p :
       {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"}) {
    if (path == p) return "POST";
  }
  return "";
}

ApiResponse Service::answer(const ApiCall& call) const {
  try {
    return route(call);
  } catch (...) {
    return error_response(current_api_error());
  }
}

ApiResponse Service::route(const ApiCall& call) const {
  const std::string allowed = methods(call.path);
  if (allowed.empty()) {
    throw ApiError(404, "invalid_request_error",
                   fmt::format("Unknown request URL: {} {}", call.method, call.path), "",
                   "unknown_url");
  }
  if (call.method != allowed) {
    ApiResponse r = error_response(
        ApiError(405, "invalid_request_error",
                 fmt::format("{} is asked with {}, not {}", call.path, allowed, call.method), "",
                 "method_not_allowed"));
    r.headers.emplace_back("Allow", allowed);
    return r;
  }
  if (call.path == "/health") return health();
  if (call.path == "/metrics") {
    std::string text = metrics_text(queue_.counts());
    if (const auto each = queue_.each_count(); each.size() > 1) {
      text += replica_metrics_text(each, model_.devices);
    }
    return {200, "text/plain; version=0.0.4", std::move(text), {}, {}};
  }
  if (const EmbeddedFile* const file = find_file(api_files(), call.path)) {
    return {200, content_type_of(file->path), std::string(file->bytes), {}, {}};
  }
  if (call.path.starts_with(kModels)) return models(call.path);
  if (call.path == "/tokenize") return tokenize(call.body);
  if (call.path == "/detokenize") return detokenize(call.body);
  if (call.path == "/v1/embeddings") {
    throw ApiError(
        404, "invalid_request_error",
        fmt::format("'{}' is a model that writes, and has no embeddings of texts", model_.name),
        "model", "model_not_found");
  }
  const Json body = parse_body(call.body);
  if (call.path == "/v1/completions") {
    return answer_completion(body, model_, queue_, call.gone);
  }
  return answer_chat(body, model_, queue_, call.gone);
}

// Of several replicas one that works is enough to serve.
ApiResponse Service::health() const {
  const std::vector<SchedulerCounts> each = queue_.each_count();
  const auto broken = std::ranges::count_if(each, [](const auto& c) { return !c.broken.empty(); });
  const bool any = broken < int64_t(each.size());
  Json j = {{"status", broken == 0 ? "ok" : any ? "degraded" : "error"}};
  if (broken > 0) j["message"] = "the last step of the model failed; the log says why";
  if (each.size() > 1) {
    for (size_t i = 0; i < each.size(); ++i) {
      j["replicas"].push_back(
          {{"device", model_.devices.at(i)}, {"status", each[i].broken.empty() ? "ok" : "error"}});
    }
  }
  ApiResponse r = json_response(j);
  if (!any) r.status = 503;
  return r;
}

ApiResponse Service::models(const std::string& path) const {
  const Json model = {{"id", model_.name},
                      {"object", "model"},
                      {"created", model_.created},
                      {"owned_by", "nibble"},
                      {"max_model_len", model_.context}};
  if (path == kModels) return json_response({{"object", "list"}, {"data", Json::array({model})}});
  if (path == fmt::format("{}/{}", kModels, model_.name)) return json_response(model);
  throw ApiError(404, "invalid_request_error",
                 fmt::format("The model '{}' does not exist; this server has '{}'",
                             path.substr(kModels.size() + 1), model_.name),
                 "model", "model_not_found");
}

ApiResponse Service::tokenize(const std::string& text) const {
  const Json body = parse_body(text);
  BodyFields f(body);
  check_model(f, model_);
  const Tokenizer& tokenizer = model_.require_tokenizer();
  const auto prompt = f.text("prompt");
  const Json* const messages = f.any("messages");
  const bool begin_reply = f.boolean("add_generation_prompt").value_or(true);
  const bool texts = f.boolean("return_token_strs").value_or(false);
  f.finish();
  if (prompt.has_value() == (messages != nullptr))
    throw_invalid("prompt", "give a 'prompt' or 'messages'");
  std::vector<int32_t> ids;
  if (prompt) {
    ids = tokenizer.encode(*prompt);
  } else {
    ids = encode_chat(
        tokenizer, read_messages(*messages), {},
        {model_.style, begin_reply ? GenerationPrompt::yes : GenerationPrompt::no, model_.thinking},
        model_.content);
  }
  Json j = {{"count", ids.size()}, {"max_model_len", model_.context}, {"tokens", ids}};
  if (texts) {
    j["token_strs"] = Json::array();
    for (const int32_t id : ids) j["token_strs"].push_back(shown_token(tokenizer, id));
  }
  return json_response(j);
}

ApiResponse Service::detokenize(const std::string& text) const {
  const Json body = parse_body(text);
  BodyFields f(body);
  check_model(f, model_);
  const Tokenizer& tokenizer = model_.require_tokenizer();
  const Json* const tokens = f.any("tokens");
  f.finish();
  if (!tokens || !tokens->is_array()) throw_invalid("tokens", "'tokens' must be an array of ids");
  std::vector<int32_t> ids;
  for (const Json& j : *tokens) {
    const double id = j.is_number_integer() ? j.get<double>() : -1;
    if (!(id >= 0 && id < tokenizer.vocab_size())) {
      throw_invalid("tokens", "'tokens' has an id that is not from 0 to {}",
                    tokenizer.vocab_size() - 1);
    }
    ids.push_back(int32_t(id));
  }
  return json_response({{"prompt", tokenizer.decode(ids)}});
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "runtime/model_template.h"

#include <optional>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "runtime/model_texts.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A token is written as its text or as {"content": text, ...}.
std::optional<std::string> token_text(const Json& j) {
  if (j.is_string()) return j.get<std::string>();
  if (j.is_object() && j.contains("content") && j.at("content").is_string()) {
    return j.at("content").get<std::string>();
  }
  return std::nullopt;
}

// One template, or several with names, of which "default" is meant.
std::string template_text(const Json& j, const std::string& where) {
  if (j.is_string()) return j.get<std::string>();
  if (j.is_null()) return {};
  if (j.is_array()) {
    for (const Json& one : j) {
      const auto text = [&](const char* key) { return one.contains(key) && one[key].is_string(); };
      if (one.is_object() && text("name") && one["name"] == "default" && text("template")) {
        return one.at("template").get<std::string>();
      }
    }
    throw_format("{}: 'chat_template' lists templates, but none is named 'default'", where);
  }
  throw_format("{}: 'chat_template' is neither a text nor a list of templates", where);
}

}  // namespace

void read_tokenizer_config(std::string_view text, const std::string& where, ModelTemplate& out) {
  const Json j = parse_json_or_discard<Json>(text);
  if (!j.is_object()) throw_format("{}: not a JSON object", where);
  for (const auto& [name, value] : j.items()) {
    if (!std::string_view(name).ends_with("_token")) continue;
    if (const auto token = token_text(value)) out.token_strings.emplace_back(name, *token);
  }
  if (j.contains("chat_template")) {
    out.source = template_text(j.at("chat_template"), where);
    out.from = where;
  }
}

ModelTemplate find_model_template(const fs::path& tokenizer) {
  ModelTemplate out;
  constexpr const char* kConfig = "tokenizer_config.json";
  const fs::path place = place_of(tokenizer);
  // A GGUF has the text in itself.
  const auto file = [&](const char* name) {
    return fs::is_directory(place) ? place / name : place;
  };
  if (const auto text = companion_text(place, kConfig)) {
    read_tokenizer_config(*text, file(kConfig).string(), out);
  }
  if (const auto text = companion_text(place, "chat_template.jinja")) {
    out.source = *text;
    out.from = file("chat_template.jinja");
  }
  return out;
}

ChatTemplate choose_template(const std::string& named, const fs::path& tokenizer) {
  for (const auto style :
       {TemplateStyle::chatml, TemplateStyle::qwen3, TemplateStyle::predecessor}) {
    if (named == template_name(style)) return style;
  }
  ModelTemplate own = find_model_template(tokenizer);
  if (!named.empty()) {
    if (!fs::is_regular_file(named)) {
      throw_usage("--template {}: neither a file nor one of chatml, qwen3, predecessor", named);
    }
    return ChatTemplate::compile(read_text_file(named), named, std::move(own.token_strings));
  }
  if (own.source.empty()) {
    log_info("the model brings no chat template: nibble's own qwen3 (ChatML) is used instead");
    return TemplateStyle::qwen3;
  }
  log_info("chat template: {}", own.from.string());
  return ChatTemplate::compile(own.source, own.from.string(), std::move(own.token_strings));
}

}  // namespace nibble

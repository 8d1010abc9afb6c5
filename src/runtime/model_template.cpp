// SPDX-License-Identifier: MIT
#include "runtime/model_template.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/file.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::optional<std::string> text_beside(const fs::path& tokenizer, const char* name) {
  const fs::path file = tokenizer.parent_path() / name;
  if (!fs::is_regular_file(file)) return std::nullopt;
  return read_text_file(file);
}

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
      if (one.is_object() && one.value("name", "") == "default" && one.contains("template") &&
          one.at("template").is_string()) {
        return one.at("template").get<std::string>();
      }
    }
    throw_format("{}: 'chat_template' lists templates, but none is named 'default'", where);
  }
  throw_format("{}: 'chat_template' is neither a text nor a list of templates", where);
}

}  // namespace

ModelTemplate find_model_template(const fs::path& tokenizer) {
  ModelTemplate out;
  constexpr const char* kConfig = "tokenizer_config.json";
  if (const auto text = text_beside(tokenizer, kConfig)) {
    const std::string where = (tokenizer.parent_path() / kConfig).string();
    const Json j = Json::parse(*text, nullptr, false);
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
  if (const auto text = text_beside(tokenizer, "chat_template.jinja")) {
    out.source = *text;
    out.from = tokenizer.parent_path() / "chat_template.jinja";
  }
  return out;
}

}  // namespace nibble

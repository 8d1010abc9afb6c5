// SPDX-License-Identifier: MIT
#include "serve/api/body_fields.h"

#include "core/json.h"
#include "serve/api/api_error.h"

namespace nibble {

BodyFields::BodyFields(const Json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (!object.is_object()) {
    throw_invalid(path_, "{} must be a JSON object", path_.empty() ? "the request" : path_);
  }
}

const BodyFields::Json* BodyFields::any(std::string_view name) {
  known_.emplace(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<bool> BodyFields::boolean(std::string_view name) {
  const Json* const j = any(name);
  if (!j) return std::nullopt;
  if (!j->is_boolean()) throw_invalid(path_of(name), "'{}' must be true or false", path_of(name));
  return j->get<bool>();
}

std::optional<double> BodyFields::number(std::string_view name, double least, double most) {
  const Json* const j = any(name);
  if (!j) return std::nullopt;
  const double value = j->is_number() ? j->get<double>() : 0;
  if (!j->is_number() || !(value >= least && value <= most)) {
    throw_invalid(path_of(name), "'{}' must be a number from {} to {}", path_of(name), least, most);
  }
  return value;
}

std::optional<int64_t> BodyFields::integer(std::string_view name, int64_t least, int64_t most) {
  const Json* const j = any(name);
  if (!j) return std::nullopt;
  const bool fits =
      j->is_number_unsigned() ? j->get<uint64_t>() <= uint64_t(INT64_MAX) : j->is_number_integer();
  const int64_t value = fits ? j->get<int64_t>() : 0;
  if (!fits || value < least || value > most) {
    throw_invalid(path_of(name), "'{}' must be a whole number from {} to {}", path_of(name), least,
                  most);
  }
  return value;
}

std::optional<std::string> BodyFields::text(std::string_view name) {
  const Json* const j = any(name);
  if (!j) return std::nullopt;
  if (!j->is_string()) throw_invalid(path_of(name), "'{}' must be a string", path_of(name));
  return j->get<std::string>();
}

void BodyFields::refuse(std::string_view name, std::string_view why) {
  if (any(name)) {
    throw ApiError(400, "invalid_request_error",
                   fmt::format("'{}' is not supported here: {}", path_of(name), why), path_of(name),
                   "unsupported_parameter");
  }
}

void BodyFields::finish() const {
  for (const auto& [name, value] : object_.items()) {
    if (known_.contains(name)) continue;
    throw ApiError(400, "invalid_request_error",
                   fmt::format("Unrecognized request argument supplied: {}", path_of(name)),
                   path_of(name), "unknown_parameter");
  }
}

nlohmann::ordered_json parse_body(const std::string& text) {
  using Json = nlohmann::ordered_json;
  try {
    return parse_json<Json>(text);
  } catch (const Json::exception& e) {
    throw_invalid("", "the body is not JSON: {}", e.what());
  }
}

}  // namespace nibble

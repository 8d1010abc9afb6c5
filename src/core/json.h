// SPDX-License-Identifier: MIT
// The one way from text to JSON: every reader of it is here, behind the limit of nesting
// (ctest `layers` refuses a call of nlohmann's own anywhere else).
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/text/nesting.h"

namespace nibble {

template <class Json>
typename Json::parse_error nesting_error(size_t at) {
  return Json::parse_error::create(101, at + 1, fmt::format("nested deeper than {}", kMaxNesting),
                                   nullptr);
}

// `more`: nothing, or nlohmann's callback. Throws Json::exception.
template <class Json, class... More>
Json parse_json(std::string_view text, More&&... more) {
  if (const auto at = too_deep_in_json(text)) throw nesting_error<Json>(*at);
  return Json::parse(text.begin(), text.end(), std::forward<More>(more)...);
}

// What is not JSON becomes a discarded value (is_discarded, and no type at all).
template <class Json>
Json parse_json_or_discard(std::string_view text) {
  if (too_deep_in_json(text)) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, false);
}

// Event by event, without a tree. False: the handler refused, or was told of an error.
template <class Json, class Sax>
bool parse_json_events(std::string_view text, Sax* sax) {
  if (const auto at = too_deep_in_json(text)) {
    return sax->parse_error(*at, "", nesting_error<Json>(*at));
  }
  return Json::sax_parse(text.begin(), text.end(), sax);
}

}  // namespace nibble

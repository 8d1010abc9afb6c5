// SPDX-License-Identifier: MIT
// The one way from text to TOML, behind the limit of nesting.
#pragma once
#include <toml++/toml.h>

#include <string>
#include <string_view>

#include "core/error.h"
#include "core/text/nesting.h"

namespace nibble {

// `where`: the file, for messages. Throws FormatError.
inline toml::table parse_toml(std::string_view text, const std::string& where) {
  if (const auto at = too_deep_in_toml(text)) {
    throw_format("{}: not valid TOML at byte {}: nested deeper than {}", where, *at, kMaxNesting);
  }
  try {
    return toml::parse(text, where);
  } catch (const toml::parse_error& e) {
    throw_format("{}: line {}: not valid TOML: {}", where, e.source().begin.line, e.description());
  }
}

}  // namespace nibble

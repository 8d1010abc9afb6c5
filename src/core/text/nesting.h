// SPDX-License-Identifier: MIT
// How deeply JSON and TOML may nest: one limit for every reader. Trees of values are copied,
// compared and written by functions that call themselves once a level, so text of a hundred
// thousand brackets would end the program for want of stack. No file nibble knows needs ten.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace nibble {

inline constexpr size_t kMaxNesting = 64;

// The byte at which a JSON text goes deeper than kMaxNesting; none: it never does. Text that is
// not JSON gets an answer as well, which holds for as much of it as a parser would accept.
std::optional<size_t> too_deep_in_json(std::string_view text);
// The same for TOML, where brackets nest, and the parts of a dotted key as well.
std::optional<size_t> too_deep_in_toml(std::string_view text);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// How much room a text takes on a terminal.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace nibble {

// Columns of a line of UTF-8: ideographs, kana, hangul and emoji take two, combining marks none. A
// byte that is not UTF-8 counts as one.
size_t columns_of(std::string_view line);
// The beginning of the line that fits into so many columns, in whole characters.
std::string clipped(std::string_view line, size_t columns);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Text of unknown origin for a terminal: what would move the cursor, change colours, set titles,
// answer as if typed, or turn the direction of writing is spelled out instead of sent.
#pragma once
#include <string>
#include <string_view>

namespace nibble {

// Control characters of both kinds (C0, C1), DEL, bidirectional overrides and bytes that are not
// UTF-8 become \x1b, \u202e. Line ends and tabs stay.
std::string visible_text(std::string_view text);
// The same for a name or a cell of a table, where a line end would pretend to be another line.
std::string visible_line(std::string_view text);
// How much of `text` ends with a whole character: the rest may become one with what follows.
size_t whole_characters(std::string_view text);

}  // namespace nibble

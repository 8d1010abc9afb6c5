// SPDX-License-Identifier: MIT
// Text as a terminal shows it: characters as people count them (a letter with its accents, an emoji
// with its skin colour, a family joined of three) and the columns they take.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// Where the character that begins at `at` ends, and where the one that ends at `at` begins. Text is
// valid UTF-8; a line end is a character of its own.
size_t next_character(std::string_view text, size_t at);
size_t previous_character(std::string_view text, size_t at);

// How a character is drawn: as it is, or spelled out (core/text/visible.h) where a terminal would
// obey it.
std::string drawn_character(std::string_view character);
// The most columns a terminal may give it. Terminals differ where characters are joined, so who
// draws may rely on this to fit and not on the cursor to be there.
int character_width(std::string_view character);
int text_width(std::string_view text);

// A row of the screen: bytes [begin, end) of the text, a line end not included.
struct ScreenRow {
  size_t begin = 0, end = 0;
  bool first_of_line = false;  // of a line of the text: it has a lead before it
  int width = 0;               // with its lead
};
// Rows of at most `columns` columns; each line of the text begins behind a lead (prompt) of `lead`
// columns. At least one row.
std::vector<ScreenRow> screen_rows(std::string_view text, int lead, int columns);
// The row that shows the cursor at byte `at`: where a row ends because it is full, the next.
size_t row_of(const std::vector<ScreenRow>& rows, size_t at);

}  // namespace nibble

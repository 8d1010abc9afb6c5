// SPDX-License-Identifier: MIT
// One line at the bottom of a terminal that is drawn over itself, while the lines of the log
// (core/log.h) scroll above it. There is one for the program, as there is one standard error.
#pragma once
#include <cstddef>
#include <string_view>

namespace nibble {

// Standard error is a terminal that can go back in a line, and --quiet was not said.
bool live_line_possible();
size_t live_line_columns();  // that fit without a wrap; 79 where the terminal does not tell
// Draws it, in place of what it was; what does not fit is cut.
void draw_live_line(std::string_view text);
void erase_live_line();  // nothing of it stays; before anything else is written to the terminal
void leave_live_line();  // it stays where it is, and what follows stands below
// Whole lines, above it where there is one.
void write_log_line(std::string_view lines);

}  // namespace nibble

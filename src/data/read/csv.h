// SPDX-License-Identifier: MIT
// Comma-separated values (RFC 4180): fields may stand in quotation marks, where commas and line
// ends are text and "" is one mark. Both LF and CRLF end a row.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/lines.h"

namespace nibble {

// The rows of a file, blank lines left out, as stretches of its text. Throws FormatError with the
// line ("line 3: ...") for a quoted field that never ends.
DataUnits split_csv(std::string_view text, size_t begin);
// The fields of one row. Throws FormatError without its place.
std::vector<std::string> csv_fields(std::string_view row);
// The columns that a header row names, in lower case. Throws FormatError, saying what was expected,
// where none of them is one that data can be in.
std::vector<std::string> csv_columns(std::string_view row);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// Text from standard input. A directory there, or a device that fails, is an error and not the end
// of the text.
#pragma once
#include <istream>
#include <string>

namespace nibble {

std::string read_all(std::istream& in);               // throws FormatError
bool read_line(std::istream& in, std::string& line);  // false: no more; throws FormatError

}  // namespace nibble

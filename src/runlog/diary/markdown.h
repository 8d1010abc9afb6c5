// SPDX-License-Identifier: MIT
// Text of any origin in Markdown: nothing in it is taken for markup, and it stays on its line.
#pragma once
#include <string>

namespace nibble {

std::string markdown_text(const std::string& text);  // in a line or a cell of a table
std::string markdown_code(const std::string& text);  // as code

}  // namespace nibble

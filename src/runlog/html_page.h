// SPDX-License-Identifier: MIT
// The parts every page of nibble is made of: text made safe, and a head that lets nothing in from
// elsewhere.
#pragma once
#include <string>
#include <string_view>

namespace nibble {

// Text of any bytes as HTML text, its lines kept.
std::string html_text(std::string_view text);
// The attribute ` lang="zh-Hant"` where a text is Chinese: browsers choose the shapes of characters
// by the language. Empty otherwise.
const char* html_language(std::string_view text);
// From the doctype to </head>: the style of all pages and `style`. The page may run `script` alone,
// by its hash; empty: none.
std::string html_head(std::string_view title, std::string_view style, std::string_view script);

}  // namespace nibble

// SPDX-License-Identifier: MIT
// The files of the page, built into the program, and what a browser is told to refuse.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serve/api/api_call.h"
#include "serve/api/embedded_files.h"

namespace nibble {

std::span<const EmbeddedFile> page_files();  // "/", "/page/main.js", ...

// Nothing but the page's own files runs, styles, or is connected to; no other page may frame it.
inline constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

// The file of that path; none: there is none.
std::optional<ApiResponse> page_file(const std::string& path);
// They say nothing of models or runs and so need no key: the page asks for it itself.
std::vector<std::string> page_paths();
// Whether replies can be shown as Markdown.
bool has_markdown();

}  // namespace nibble

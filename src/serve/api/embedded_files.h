// SPDX-License-Identifier: MIT
// Files that are part of the program (src/serve/api/static), and under which path each is served.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace nibble {

struct EmbeddedFile {
  std::string_view name;  // "openapi.json"
  std::string_view bytes;
};
std::span<const EmbeddedFile> embedded_files();

// The file that "/openapi.json" names; null: none.
const EmbeddedFile* find_embedded_file(std::string_view path);
// By the end of the name: "text/html; charset=utf-8".
std::string content_type_of(std::string_view name);

}  // namespace nibble

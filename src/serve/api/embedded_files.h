// SPDX-License-Identifier: MIT
// Files that are part of the program (cmake/embed_files.cmake), and under which path each is
// served.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace nibble {

struct EmbeddedFile {
  std::string_view path;  // "/openapi.json"
  std::string_view bytes;
};
std::span<const EmbeddedFile> api_files();

// null: there is none of that path.
const EmbeddedFile* find_file(std::span<const EmbeddedFile> files, std::string_view path);
// By the end of the path: "text/html; charset=utf-8".
std::string content_type_of(std::string_view path);

}  // namespace nibble

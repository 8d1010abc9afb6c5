// SPDX-License-Identifier: MIT
#include "serve/api/embedded_files.h"

namespace nibble {

const EmbeddedFile* find_file(std::span<const EmbeddedFile> files, std::string_view path) {
  for (const EmbeddedFile& f : files) {
    if (f.path == path) return &f;
  }
  return nullptr;
}

std::string content_type_of(std::string_view path) {
  if (path.ends_with(".json")) return "application/json";
  if (path.ends_with(".html") || path == "/") return "text/html; charset=utf-8";
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (path.ends_with(".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

}  // namespace nibble

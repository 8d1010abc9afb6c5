// SPDX-License-Identifier: MIT
#include "serve/api/embedded_files.h"

namespace nibble {

const EmbeddedFile* find_embedded_file(std::string_view path) {
  if (!path.starts_with("/")) return nullptr;
  for (const EmbeddedFile& f : embedded_files()) {
    if (f.name == path.substr(1)) return &f;
  }
  return nullptr;
}

std::string content_type_of(std::string_view name) {
  if (name.ends_with(".json")) return "application/json";
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

}  // namespace nibble

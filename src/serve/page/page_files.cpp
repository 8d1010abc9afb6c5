// SPDX-License-Identifier: MIT
#include "serve/page/page_files.h"

namespace nibble {

std::optional<ApiResponse> page_file(const std::string& path) {
  const EmbeddedFile* const file = find_file(page_files(), path);
  if (!file) return std::nullopt;
  return ApiResponse{200,
                     content_type_of(file->path),
                     std::string(file->bytes),
                     {{"Content-Security-Policy", kPagePolicy},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"}},
                     {}};
}

std::vector<std::string> page_paths() {
  std::vector<std::string> paths;
  for (const EmbeddedFile& f : page_files()) paths.emplace_back(f.path);
  return paths;
}

bool has_markdown() {
  return find_file(page_files(), "/page/lib/marked.js") &&
         find_file(page_files(), "/page/lib/purify.js");
}

}  // namespace nibble

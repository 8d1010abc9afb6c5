// SPDX-License-Identifier: MIT
#include "serve/page/path_parts.h"

#include "serve/api/api_error.h"

namespace nibble {

std::vector<std::string> path_parts(std::string_view path) {
  std::vector<std::string> parts;
  if (path.starts_with("/")) path.remove_prefix(1);
  for (;;) {
    const size_t end = path.find('/');
    parts.emplace_back(path.substr(0, end));
    if (end == path.npos) return parts;
    path.remove_prefix(end + 1);
  }
}

void throw_no_path(const std::string& path) {
  throw ApiError(404, "invalid_request_error", fmt::format("Unknown request URL: {}", path), "",
                 "unknown_url");
}

void require_method(const std::string& method, const char* wanted, const std::string& path) {
  if (method == wanted) return;
  throw ApiError(405, "invalid_request_error",
                 fmt::format("{} is asked with {}, not {}", path, wanted, method), "",
                 "method_not_allowed");
}

}  // namespace nibble

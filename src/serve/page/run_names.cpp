// SPDX-License-Identifier: MIT
#include "serve/page/run_names.h"

#include <algorithm>

#include "serve/api/api_error.h"

namespace nibble {

namespace fs = std::filesystem;

bool is_plain_name(const std::string& name) {
  if (name.empty() || name.size() > 200 || name.front() == '.') return false;
  return std::ranges::all_of(
      name, [](char c) { return c != '/' && c != '\\' && static_cast<unsigned char>(c) >= 0x20; });
}

fs::path folder_inside(const fs::path& base, const std::string& name, const char* what) {
  std::error_code ec;
  if (is_plain_name(name)) {
    const fs::path folder = base / name;
    if (fs::symlink_status(folder, ec).type() == fs::file_type::directory) return folder;
  }
  throw ApiError(404, "invalid_request_error", fmt::format("there is no {} '{}' here", what, name),
                 "", "not_found");
}

}  // namespace nibble

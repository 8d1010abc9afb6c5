// SPDX-License-Identifier: MIT
#include "convert/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kSuffix = ".safetensors";

// Without links and "..": of the folder alone, for a link to a file has the name that counts.
fs::path real_place(const fs::path& file) {
  const fs::path whole = fs::absolute(file).lexically_normal();
  return fs::weakly_canonical(whole.parent_path()) / whole.filename();
}

}  // namespace

fs::path seen_from(const fs::path& directory, const fs::path& file) {
  if (file.empty()) return {};
  return real_place(file).lexically_relative(fs::weakly_canonical(directory));
}

fs::path found_from(const fs::path& directory, const fs::path& seen) {
  if (seen.empty() || seen.is_absolute()) return seen;
  return (fs::weakly_canonical(fs::absolute(directory)) / seen).lexically_normal();
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

bool is_checkpoint_name(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with(kPrefix) && name.ends_with(kSuffix);
}

std::vector<CheckpointFile> list_checkpoints(const fs::path& directory) {
  std::vector<CheckpointFile> found;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(directory, ec)) {
    const std::string name = entry.path().filename().string();
    if (!is_checkpoint_name(entry.path())) continue;
    const char *begin = name.data() + std::strlen(kPrefix),
               *end = name.data() + name.size() - std::strlen(kSuffix);
    int64_t step = 0;
    const auto [stop, error] = std::from_chars(begin, end, step);
    if (error == std::errc() && stop == end) found.push_back({entry.path(), step});
  }
  std::ranges::sort(found, {}, &CheckpointFile::step);
  return found;
}

}  // namespace nibble

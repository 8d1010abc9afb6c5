// SPDX-License-Identifier: MIT
#include "convert/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace nibble {
namespace {

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kSuffix = ".safetensors";

}  // namespace

std::string checkpoint_name(int64_t step) {
  return fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

bool is_checkpoint_name(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with(kPrefix) && name.ends_with(kSuffix);
}

std::vector<CheckpointFile> list_checkpoints(const std::filesystem::path& directory) {
  std::vector<CheckpointFile> found;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ec)) {
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

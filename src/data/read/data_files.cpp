// SPDX-License-Identifier: MIT
#include "data/read/data_files.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/sha256.h"
#include "data/read/gzip.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  auto at = fs::recursive_directory_iterator(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const bool hidden = at->path().filename().string().starts_with(".");
    std::error_code ignored;
    if (at->is_directory(ignored)) {
      if (hidden) at.disable_recursion_pending();
    } else if (!hidden && at->is_regular_file(ignored)) {
      out.push_back(at->path());
    }
  }
  if (error) throw_format("{}: the folder cannot be read: {}", folder.string(), error.message());
  std::ranges::sort(out);
  return out;
}

}  // namespace

DataFileList data_files(const fs::path& named, DataFormat format, DataUse use, ExtraKeys extra) {
  DataFileList list;
  const auto told = [&](const fs::path& file) {
    return format == DataFormat::automatic ? format_named(file, use) : std::optional(format);
  };
  std::error_code ignored;
  if (!fs::is_directory(named, ignored)) {
    list.files.push_back({named, format == DataFormat::automatic ? format_of(named, use) : format});
    return list;
  }
  for (const fs::path& file : files_below(named)) {
    if (const auto found = told(file)) {
      list.files.push_back({file, *found});
    } else if (extra == ExtraKeys::refuse) {
      throw_usage(
          "{}: the name does not tell the format, and --strict-data asks for nothing to be "
          "left out of a folder",
          file.string());
    } else {
      if (list.passed_over++ == 0) list.one_passed_over = file;
    }
  }
  if (list.files.empty()) {
    throw_format(
        "{}: no data in this folder: no file that ends in .jsonl, .json, .csv, .tsv or "
        ".txt (or one of these and .gz)",
        named.string());
  }
  if (list.passed_over > 0) {
    log_warning(
        "{}: {} of the folder's files passed over, because their names tell no format of "
        "data ({})",
        named.string(), list.passed_over, list.one_passed_over.filename().string());
  }
  return list;
}

DataText read_data_text(const fs::path& file, WithHash hash) {
  DataText out;
  out.text = read_text_file(file, std::numeric_limits<uint64_t>::max());
  if (hash == WithHash::yes) out.sha256 = sha256_hex(out.text);
  if (is_gzip(out.text)) out.text = gunzip(out.text, file.string());
  return out;
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
// What a person names as data: a file, perhaps compressed, or a folder of files.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/lines.h"
#include "data/read/data_reader.h"

namespace nibble {

struct DataFile {
  std::filesystem::path path;
  DataFormat format;
};
struct DataFileList {
  std::vector<DataFile> files;
  int64_t passed_over = 0;  // files of a folder whose names tell no format
  std::filesystem::path one_passed_over;
};
// A file is itself. Of a folder all files in it and below, in the order of their names, hidden ones
// left out; with a format given, all of them have it. Throws UsageError where a name does not tell
// (or, with ExtraKeys::refuse, one of a folder), FormatError where there is nothing.
DataFileList data_files(const std::filesystem::path& named, DataFormat format, DataUse use,
                        ExtraKeys extra);

struct DataText {
  std::string text;    // decompressed
  std::string sha256;  // of the bytes on disk
};
enum class WithHash { no, yes };
DataText read_data_text(const std::filesystem::path& file, WithHash hash);

}  // namespace nibble

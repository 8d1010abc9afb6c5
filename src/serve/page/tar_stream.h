// SPDX-License-Identifier: MIT
// A folder of files as a tar archive (ustar), piece by piece: a model is larger than memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file.h"

namespace nibble {

class TarStream {
 public:
  // The regular files directly in `folder`, below `root` in the archive. Throws FormatError.
  TarStream(const std::filesystem::path& folder, const std::string& root);
  // Appends what comes next; false: that was all.
  bool next(std::string& out);

 private:
  struct Entry {
    std::string name;
    InputFile file;
  };
  std::vector<Entry> entries_;
  size_t at_ = 0;
  uint64_t offset_ = 0;
  bool begun_ = false;  // the header of entries_[at_] is out
};

// 512 bytes before a file's own. Throws FormatError for a name or a size that has no place in it.
std::string tar_header(const std::string& name, uint64_t size);

}  // namespace nibble

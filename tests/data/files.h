// SPDX-License-Identifier: MIT
// A directory that goes with the test.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/file.h"

namespace nibble::test {

class TempDir {
 public:
  TempDir() {
    static int n = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("nibble-data-" + std::to_string(::getpid()) + "-" + std::to_string(n++));
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  std::filesystem::path write(const char* name, std::string_view text) const {
    replace_file(path_ / name, text);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace nibble::test

// SPDX-License-Identifier: MIT
// A lock that a program holds on a name (flock): it ends with the program, however that ends, and
// is seen from other containers, where process numbers mean nothing.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace nibble {

class FileLock {
 public:
  // Nothing when another holds it. The file appears, says who holds it, and goes with the lock.
  // On a file system without locks it is only a file. Throws FormatError when it cannot be made.
  static std::optional<FileLock> take(const std::filesystem::path& file);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  FileLock(std::filesystem::path file, int fd) : file_(std::move(file)), fd_(fd) {}
  std::filesystem::path file_;
  int fd_ = -1;
};

enum class LockState {
  held,
  free,    // its program has ended without removing it
  absent,  // there is no such file
  unknown  // it may not be read, or the file system cannot say
};
LockState lock_state(const std::filesystem::path& file);
// Who holds it, as it says: "process 4711 on host".
std::string lock_holder(const std::filesystem::path& file);

// The lock of a directory that one program at a time may write.
std::filesystem::path lock_in(const std::filesystem::path& directory);
// The lock of a file or directory that is to appear: beside it.
std::filesystem::path lock_beside(const std::filesystem::path& target);

}  // namespace nibble

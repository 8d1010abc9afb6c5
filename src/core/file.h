// SPDX-License-Identifier: MIT
// Files, read by position and written atomically. read() straight into the caller's memory
// instead of mmap: on unified-memory machines mapped loads are ten times slower.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace nibble {

// An open file for reading at any offset. Thread-safe: reads carry their own position.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);  // throws FormatError
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  // Fills `out` from byte `offset`; throws FormatError when the file ends before.
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  int fd_ = -1;
  uint64_t size_ = 0;
  std::filesystem::path path_;
};

// A file that appears under its name only when it is whole: written to a temporary name beside
// the target, flushed to disk, renamed by commit(). Without commit() the temporary is removed.
// A link is followed and stays a link; a device or a pipe is written to directly, and commit()
// only closes it.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target);  // throws FormatError
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);  // appends
  void write(std::string_view text);
  uint64_t written() const { return written_; }
  void commit();

 private:
  const std::filesystem::path& written_to() const;

  void forget_temporary();                    // it is gone: removed or renamed
  std::filesystem::path target_, temporary_;  // no temporary: a device or a pipe
  int fd_ = -1;
  uint64_t written_ = 0;
};

// Removes the temporaries of every AtomicFile in progress. Safe to call in a signal handler, which
// is what it is for: an interrupted program leaves nothing half-written behind.
void remove_temporary_files() noexcept;

// Whole file as a string; `limit` guards against reading a huge file as text.
std::string read_text_file(const std::filesystem::path& path, uint64_t limit = 1ull << 30);
void write_text_file_atomic(const std::filesystem::path& path, std::string_view text);
// True when both paths name the same existing file (also through links).
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace nibble

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
  // What the system keeps of it in memory (the page cache) is not needed any more and makes way, as
  // far as it is on the disk. Another reader fetches it again.
  void forget_cached() const;
  // The same open file once more, whatever has its name by now.
  InputFile again() const;
  // Whether it was written to since it was opened.
  bool changed() const;

 private:
  InputFile() = default;
  int fd_ = -1;
  uint64_t size_ = 0;
  int64_t modified_ns_ = 0;  // when it was opened
  std::filesystem::path path_;
};

// What becomes of a file that has the name already when the new one is whole.
enum class Existing {
  replace,
  keep,  // it is not touched, and commit() throws; nothing is there after any other error, too
};

// A file that appears under its name only when it is whole: written to a temporary beside the
// target (durable/temporary.h), flushed to disk, renamed by commit(), which flushes the directory,
// too. Without commit() the temporary is removed. The mode and owner of a file that is replaced
// stay. A link is followed and stays a link; a device or a pipe is written to directly, and
// commit() only closes it.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target,
                      Existing existing = Existing::replace);  // throws FormatError
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);  // appends
  void write(std::string_view text);
  // Bytes in place of some that were written already.
  void rewrite(uint64_t offset, std::string_view text);
  uint64_t written() const { return written_; }
  void commit();

 private:
  const std::filesystem::path& written_to() const;

  std::filesystem::path target_, temporary_;  // no temporary: a device or a pipe
  Existing existing_;
  int fd_ = -1;
  uint64_t written_ = 0;
};

// Gives the file or directory `from` the name `to` and flushes the directory. Throws FormatError.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to,
                    Existing existing);

// Whole file as a string; `limit` guards against reading a huge file as text.
std::string read_text_file(const std::filesystem::path& path, uint64_t limit = 1ull << 30);
// The one way to write a small file: whole or not at all, flushed to disk.
void replace_file(const std::filesystem::path& path, std::string_view text,
                  Existing existing = Existing::replace);
// Adds to a file of lines, which it makes where there is none; flushed to disk. What a crash left
// of a line before is ended first. Throws FormatError.
void append_file(const std::filesystem::path& path, std::string_view lines);
// True when both paths name the same existing file (also through links).
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace nibble

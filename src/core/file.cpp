// SPDX-License-Identifier: MIT
#include "core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace nibble {
namespace {

// Linux transfers at most this many bytes in one call; larger requests are split.
constexpr size_t kMaxTransfer = size_t(1) << 30;

std::string error_text() { return std::strerror(errno); }

// What `path` leads to through links, also where the last one points to nothing yet.
std::filesystem::path final_target(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as the kernel counts
  struct stat st {};
  for (int i = 0; i < kMostLinks; ++i) {
    if (::lstat(path.c_str(), &st) != 0 || !S_ISLNK(st.st_mode)) return path;
    // A link of /proc (/dev/stdout) may name a pipe, which has no path: it is opened as it is.
    if (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) return path;
    std::error_code ec;
    const std::filesystem::path to = std::filesystem::read_symlink(path, ec);
    if (ec) throw_format("cannot follow the link {}: {}", path.string(), ec.message());
    path = path.parent_path() / to;
  }
  throw_format("cannot write {}: too many links", path.string());
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: a pipe without a writer, or a device, must not keep us in open(); it means nothing
  // for a regular file, which is all that is taken.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd_ < 0) throw_format("cannot open {}: {}", path.string(), error_text());
  struct stat st {};
  if (::fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode)) {
    const bool is_directory = S_ISDIR(st.st_mode);
    ::close(fd_);
    fd_ = -1;
    throw_format("cannot read {}: {}", path.string(),
                 is_directory ? "it is a directory" : "it is not a regular file");
  }
  size_ = uint64_t(st.st_size);
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(other.size_), path_(std::move(other.path_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

void InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    throw_format("{}: {} bytes wanted at offset {}, but the file has {} bytes (truncated?)",
                 path_.string(), out.size(), offset, size_);
  }
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd_, out.data() + done, std::min(out.size() - done, kMaxTransfer),
                              off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw_format("{}: read at offset {} failed: {}", path_.string(), offset + done, error_text());
    if (n == 0)
      throw_format("{}: the file shrank while it was read (offset {})", path_.string(),
                   offset + done);
    done += size_t(n);
  }
}

namespace {

// Paths of temporaries for remove_temporary_files(): plain memory that a signal handler may read.
// More than 64 files at once, or longer paths, are not remembered.
struct TemporaryPath {
  std::atomic<bool> claimed{false}, valid{false};
  char path[1024];
};
TemporaryPath g_temporaries[64];

void remember_temporary(const std::string& path) {
  for (TemporaryPath& t : g_temporaries) {
    if (path.size() >= sizeof t.path || t.claimed.exchange(true)) continue;
    std::memcpy(t.path, path.c_str(), path.size() + 1);
    t.valid = true;
    return;
  }
}

}  // namespace

void remove_temporary_files() noexcept {
  for (TemporaryPath& t : g_temporaries) {
    if (t.valid) ::unlink(t.path);
  }
}

void AtomicFile::forget_temporary() {
  for (TemporaryPath& t : g_temporaries) {
    if (!t.valid || temporary_ != t.path) continue;
    t.valid = false;
    t.claimed = false;
    return;
  }
}

AtomicFile::AtomicFile(const std::filesystem::path& target) : target_(final_target(target)) {
  struct stat st {};
  const bool exists = ::stat(target_.c_str(), &st) == 0;
  if (exists && S_ISDIR(st.st_mode)) {
    throw_format("cannot write {}: it is a directory", target.string());
  }
  if (exists && !S_ISREG(st.st_mode)) {
    fd_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) throw_format("cannot write to {}: {}", target.string(), error_text());
    return;
  }
  temporary_ = target_;
  temporary_ += ".tmp." + std::to_string(::getpid());
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw_format("cannot create {}: {}", temporary_.string(), error_text());
  remember_temporary(temporary_.string());
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    forget_temporary();
  }
}

const std::filesystem::path& AtomicFile::written_to() const {
  return temporary_.empty() ? target_ : temporary_;
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        ::write(fd_, bytes.data() + done, std::min(bytes.size() - done, kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw_format("cannot write {} at offset {}: {}", written_to().string(), written_ + done,
                   error_text());
    done += size_t(n);
  }
  written_ += bytes.size();
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  if (temporary_.empty()) {
    if (::close(std::exchange(fd_, -1)) != 0) {
      throw_format("cannot finish {}: {}", target_.string(), error_text());
    }
    return;
  }
  if (::fsync(fd_) != 0) throw_format("cannot flush {}: {}", temporary_.string(), error_text());
  const int closed = ::close(fd_);
  fd_ = -1;
  const bool renamed = closed == 0 && ::rename(temporary_.c_str(), target_.c_str()) == 0;
  forget_temporary();
  if (!renamed) {
    const std::string why = error_text();
    ::unlink(temporary_.c_str());
    throw_format("cannot finish {}: {}", target_.string(), why);
  }
  // The rename itself must survive a power cut, too: flush the directory entry.
  const std::filesystem::path parent = target_.has_parent_path() ? target_.parent_path() : ".";
  const int dir = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    ::fsync(dir);
    ::close(dir);
  }
}

std::string read_text_file(const std::filesystem::path& path, uint64_t limit) {
  const InputFile f(path);
  if (f.size() > limit) {
    throw_format("{}: {} bytes is too large to read as text (limit {})", path.string(), f.size(),
                 limit);
  }
  std::string s(size_t(f.size()), '\0');
  f.read(0, std::as_writable_bytes(std::span(s)));
  return s;
}

void write_text_file_atomic(const std::filesystem::path& path, std::string_view text) {
  AtomicFile f(path);
  f.write(text);
  f.commit();
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ec;
  return std::filesystem::equivalent(a, b, ec) && !ec;
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/durable/directories.h"
#include "core/durable/temporary.h"
#include "core/error.h"

namespace nibble {
namespace {

// Linux transfers at most this many bytes in one call; larger requests are split.
constexpr size_t kMaxTransfer = size_t(1) << 30;

std::string error_text() { return std::strerror(errno); }

int64_t modified_ns(const struct stat& st) {
  return int64_t(st.st_mtim.tv_sec) * 1'000'000'000 + st.st_mtim.tv_nsec;
}

// Returns errno, 0 when all is written.
int write_all(int fd, std::span<const std::byte> bytes, uint64_t& written) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    written += uint64_t(n);
    bytes = bytes.subspan(size_t(n));
  }
  return 0;
}

// Returns errno. RENAME_NOREPLACE, or where a file system has not got it the same by a link.
int rename_to_free_name(const char* from, const char* to) {
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::link(from, to) != 0) return errno;
  ::unlink(from);
  return 0;
}

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
  modified_ns_ = modified_ns(st);
}

void InputFile::forget_cached() const {
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);  // a hint: where it is not taken all stays
}

InputFile InputFile::again() const {
  InputFile f;
  f.fd_ = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (f.fd_ < 0) throw_format("cannot open {} once more: {}", path_.string(), error_text());
  f.size_ = size_;
  f.modified_ns_ = modified_ns_;
  f.path_ = path_;
  return f;
}

bool InputFile::changed() const {
  struct stat st {};
  return ::fstat(fd_, &st) != 0 || uint64_t(st.st_size) != size_ || modified_ns(st) != modified_ns_;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      modified_ns_(other.modified_ns_),
      path_(std::move(other.path_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
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

AtomicFile::AtomicFile(const std::filesystem::path& target, Existing existing)
    : target_(final_target(target)), existing_(existing) {
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
  const Temporary made = create_temporary_file(target_);
  temporary_ = made.path;
  fd_ = made.fd;
  if (!exists) return;
  struct stat own {};
  // The owner first: giving a file away takes the set-user-id bits off it.
  const bool other_owner =
      ::fstat(fd_, &own) == 0 && (own.st_uid != st.st_uid || own.st_gid != st.st_gid);
  if (other_owner && ::fchown(fd_, st.st_uid, st.st_gid) != 0) {  // only root may
    [[maybe_unused]] const int group_alone = ::fchown(fd_, uid_t(-1), st.st_gid);
  }
  ::fchmod(fd_, st.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    forget_temporary(temporary_);
  }
  ::close(fd_);
}

const std::filesystem::path& AtomicFile::written_to() const {
  return temporary_.empty() ? target_ : temporary_;
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (const int failed = write_all(fd_, bytes, written_); failed != 0) {
    throw_format("cannot write {} at offset {}: {}", written_to().string(), written_,
                 std::strerror(failed));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::rewrite(uint64_t offset, std::string_view text) {
  ssize_t n = -1;
  while ((n = ::pwrite(fd_, text.data(), text.size(), off_t(offset))) < 0 && errno == EINTR) {
    continue;
  }
  if (n != ssize_t(text.size())) {
    throw_format("cannot write {} at offset {}: {}", written_to().string(), offset,
                 n < 0 ? error_text() : "the disk is full");
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) {
    if (::close(std::exchange(fd_, -1)) != 0) {
      throw_format("cannot finish {}: {}", target_.string(), error_text());
    }
    return;
  }
  // Until it has its name it stays locked: nobody takes it for a leftover.
  if (::fsync(fd_) != 0) throw_format("cannot flush {}: {}", temporary_.string(), error_text());
  try {
    rename_durably(temporary_, target_, existing_);
  } catch (...) {
    // A new name that may not last is taken back: the same command can be given again. Where the
    // temporary is still there the target is not ours, and this does nothing.
    if (existing_ == Existing::keep) rename_to_free_name(target_.c_str(), temporary_.c_str());
    throw;
  }
  forget_temporary(temporary_);
  ::close(std::exchange(fd_, -1));
}

void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to,
                    Existing existing) {
  int failed = 0;
  if (existing == Existing::keep) {
    failed = rename_to_free_name(from.c_str(), to.c_str());
  } else if (::rename(from.c_str(), to.c_str()) != 0) {
    failed = errno;
  }
  if (failed == EEXIST) {
    throw_format("cannot finish {}: it has appeared meanwhile, and is kept as it is", to.string());
  }
  if (failed != 0) throw_format("cannot finish {}: {}", to.string(), std::strerror(failed));
  sync_parent(to);
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

void replace_file(const std::filesystem::path& path, std::string_view text, Existing existing) {
  AtomicFile f(path, existing);
  f.write(text);
  f.commit();
}

void append_file(const std::filesystem::path& path, std::string_view lines) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644);
  if (fd < 0) throw_format("cannot append to {}: {}", path.string(), error_text());
  struct stat st {};
  char last = '\n';
  const bool regular = ::fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  const bool torn =
      regular && st.st_size > 0 && ::pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n';
  const std::string text = (torn ? "\n" : "") + std::string(lines);
  uint64_t written = 0;
  int failed = write_all(fd, std::as_bytes(std::span(text)), written);
  if (failed == 0 && regular && ::fsync(fd) != 0) failed = errno;
  ::close(fd);
  if (failed != 0) throw_format("cannot append to {}: {}", path.string(), std::strerror(failed));
  if (regular && st.st_size == 0) sync_parent(path);
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ec;
  return std::filesystem::equivalent(a, b, ec) && !ec;
}

}  // namespace nibble

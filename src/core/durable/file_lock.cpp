// SPDX-License-Identifier: MIT
#include "core/durable/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/durable/directories.h"
#include "core/error.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kName = ".nibble-lock";

int flock_now(int fd, int kind) {
  int result = -1;
  while ((result = ::flock(fd, kind | LOCK_NB)) != 0 && errno == EINTR) continue;
  return result;
}

// Who only looks holds a lock for an instant: that is waited for.
bool held_by_another(int fd) {
  for (int i = 0; i < 20; ++i) {
    if (flock_now(fd, LOCK_EX) == 0 || errno != EWOULDBLOCK) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void say_who(int fd) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string text = fmt::format("process {} on {}\n", ::getpid(), host);
  // Only for people: a full disk is no reason not to have the lock.
  [[maybe_unused]] const bool said =
      ::ftruncate(fd, 0) == 0 && ::write(fd, text.data(), text.size()) > 0;
}

// Locks of another machine may not be seen there.
bool on_network(int fd) {
  constexpr uint32_t kNfs = 0x6969, kSmb = 0xff534d42, kSmb2 = 0xfe534d42, kFuse = 0x65735546,
                     kCeph = 0x00c36400, kAfs = 0x5346414f, k9p = 0x01021997;
  struct statfs s {};
  if (::fstatfs(fd, &s) != 0) return true;
  const auto type = uint32_t(s.f_type);
  return type == kNfs || type == kSmb || type == kSmb2 || type == kFuse || type == kCeph ||
         type == kAfs || type == k9p;
}

}  // namespace

std::optional<FileLock> FileLock::take(const fs::path& file) {
  while (true) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) throw_format("cannot make the lock {}: {}", file.string(), std::strerror(errno));
    if (held_by_another(fd)) {
      ::close(fd);
      return std::nullopt;
    }
    // Who held it before removed it on the way out: then this is the lock of no name.
    if (is_open_at(fd, file)) {
      say_who(fd);
      return FileLock(file, fd);
    }
    ::close(fd);
  }
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  if (is_open_at(fd_, file_)) ::unlink(file_.c_str());
  ::close(fd_);
}

FileLock::FileLock(FileLock&& other) noexcept
    : file_(std::move(other.file_)), fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(fd_, other.fd_);
  return *this;
}

LockState lock_state(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? LockState::absent : LockState::unknown;
  LockState state = LockState::unknown;
  if (flock_now(fd, LOCK_SH) != 0) {
    if (errno == EWOULDBLOCK) state = LockState::held;
  } else if (!on_network(fd)) {
    state = LockState::free;
  }
  ::close(fd);
  return state;
}

std::string lock_holder(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  char text[512] = {};
  const ssize_t n = fd < 0 ? 0 : ::read(fd, text, sizeof text - 1);
  if (fd >= 0) ::close(fd);
  const std::string said(text, size_t(std::max<ssize_t>(0, n)));
  const std::string line = said.substr(0, said.find('\n'));
  return line.empty() ? "another program" : line;
}

fs::path lock_in(const fs::path& directory) { return directory / kName; }

fs::path lock_beside(const fs::path& target) {
  return parent_directory(target) / ("." + target.filename().string() + std::string(kName));
}

}  // namespace nibble

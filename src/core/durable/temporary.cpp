// SPDX-License-Identifier: MIT
#include "core/durable/temporary.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/log.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kEnding = ".nibble-tmp";
constexpr size_t kDigits = 16;

std::string random_digits() {
  uint64_t value = 0;
  ssize_t n = -1;
  while ((n = ::getrandom(&value, sizeof value, 0)) < 0 && errno == EINTR) continue;
  if (n != ssize_t(sizeof value)) throw_device("no random numbers: {}", std::strerror(errno));
  return fmt::format("{:016x}", value);
}

fs::path temporary_path(const fs::path& target) {
  constexpr size_t kMostOfTheName = 200;  // a name has at most 255 bytes
  const std::string name = target.filename().string().substr(0, kMostOfTheName);
  return parent_directory(target) / (name + "." + random_digits() + std::string(kEnding));
}

enum class Taken { yes, no_locks_here, by_another };
Taken lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    return errno == EWOULDBLOCK ? Taken::by_another : Taken::no_locks_here;
  }
  return Taken::yes;
}

void remove_leftovers_once(const fs::path& directory) {
  static std::mutex mutex;
  static std::set<fs::path> done;
  std::error_code ec;
  {
    const std::lock_guard guard(mutex);
    if (!done.insert(fs::absolute(directory, ec).lexically_normal()).second) return;
  }
  remove_leftovers(directory);
}

template <class Open>
Temporary create(const fs::path& target, const Open& open) {
  remove_leftovers_once(parent_directory(target));
  constexpr int kMostAttempts = 100;
  for (int i = 0; i < kMostAttempts; ++i) {
    Temporary t{temporary_path(target)};
    t.fd = open(t.path);
    if (t.fd < 0 && errno == EEXIST) continue;
    if (t.fd < 0) throw_format("cannot create {}: {}", t.path.string(), std::strerror(errno));
    // Before it was locked it looked like a leftover, and may have been taken for one.
    if (lock(t.fd) != Taken::by_another && is_open_at(t.fd, t.path)) {
      remember_temporary(t.path);
      return t;
    }
    ::close(t.fd);
  }
  throw_format("cannot create a temporary beside {}: no name is free", target.string());
}

// Paths for remove_temporary_files(): plain memory that a signal handler may read. More than 64 at
// once, or longer paths, are not remembered.
struct Remembered {
  std::atomic<bool> claimed{false}, valid{false};
  char path[1024];
};
Remembered g_remembered[64];

}  // namespace

bool is_temporary_name(std::string_view name) {
  if (!name.ends_with(kEnding)) return false;
  name.remove_suffix(kEnding.size());
  if (name.size() < kDigits + 2 || name[name.size() - kDigits - 1] != '.') return false;
  return std::ranges::all_of(name.substr(name.size() - kDigits), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

Temporary create_temporary_file(const fs::path& target) {
  return create(target, [](const fs::path& path) {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  });
}

Temporary create_temporary_directory(const fs::path& target) {
  return create(target, [](const fs::path& path) {
    if (::mkdir(path.c_str(), 0777) != 0) return -1;
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
      const int why = errno;
      ::rmdir(path.c_str());
      errno = why;
    }
    return fd;
  });
}

void remember_temporary(const fs::path& path) {
  const std::string text = path.string();
  for (Remembered& r : g_remembered) {
    if (text.size() >= sizeof r.path || r.claimed.exchange(true)) continue;
    std::memcpy(r.path, text.c_str(), text.size() + 1);
    r.valid = true;
    return;
  }
}

void forget_temporary(const fs::path& path) {
  for (Remembered& r : g_remembered) {
    if (!r.valid || path != r.path) continue;
    r.valid = false;
    r.claimed = false;
    return;
  }
}

void remove_temporary_files() noexcept {
  for (const Remembered& r : g_remembered) {
    if (r.valid) ::unlink(r.path);
  }
  for (const Remembered& r : g_remembered) {
    if (r.valid) ::rmdir(r.path);
  }
}

void remove_leftovers(const fs::path& directory) noexcept {
  try {
    // Not directory_iterator: what it does without throwing ends the program where memory is short.
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), ::closedir);
    while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
      if (!is_temporary_name(entry->d_name)) continue;
      const fs::path path = directory / entry->d_name;
      const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
      if (fd < 0) continue;
      if (lock(fd) == Taken::yes && is_open_at(fd, path)) {
        std::error_code failed;
        fs::remove_all(path, failed);
        if (!failed) log_info("removed {}, which a killed program left", path.string());
      }
      ::close(fd);
    }
  } catch (...) {  // tidying is never the reason for a failure
  }
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "core/durable/directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace nibble {
namespace fs = std::filesystem;

fs::path parent_directory(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

bool is_open_at(int fd, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

void sync_directory(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == EACCES) return;  // may be written to and not listed: nothing to flush it by
    throw_format("cannot open {} to flush it: {}", directory.string(), std::strerror(errno));
  }
  const int failed = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some file systems cannot flush a directory, and say so with one of these.
  if (failed == 0 || failed == EINVAL || failed == ENOTSUP || failed == EROFS) return;
  throw_format("cannot flush {}: {}", directory.string(), std::strerror(failed));
}

void sync_parent(const fs::path& path) { sync_directory(parent_directory(path)); }

void make_directories(const fs::path& directory) {
  if (directory.empty() || fs::is_directory(directory)) return;
  const fs::path whole = directory.has_filename() ? directory : directory.parent_path();
  make_directories(whole.parent_path());
  if (::mkdir(whole.c_str(), 0777) != 0) {
    const int why = errno;
    if (why == EEXIST && fs::is_directory(whole)) return;  // another program was faster
    throw_format("cannot create {}: {}", whole.string(), std::strerror(why));
  }
  sync_parent(whole);
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "runlog/tensorboard/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/durable/directories.h"
#include "core/error.h"
#include "runlog/tensorboard/event_bytes.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kEventPrefix = "events.out.tfevents.";

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The time in the name of the newest event file; 0 where there is none.
int64_t newest_events(const fs::path& folder) {
  int64_t newest = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(kEventPrefix)) continue;
    newest = std::max<int64_t>({newest, 1, std::atoll(name.c_str() + kEventPrefix.size())});
  }
  return newest;
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "host";
  return name;
}

}  // namespace

void check_tensorboard_folder(const fs::path& folder, bool goes_on) {
  std::error_code ignored;
  if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) {
    throw_usage("--tensorboard {}: this is a file, and a folder is needed", folder.string());
  }
  if (goes_on || newest_events(folder) == 0) return;
  throw_usage(
      "--tensorboard {}: this folder has the curves of another run, and both would be drawn as "
      "one. "
      "Name a folder of its own, e.g. {}: tensorboard --logdir {} shows all below it beside each "
      "other (a run that goes on with --resume goes on with its curves)",
      folder.string(), (folder.parent_path() / (folder.filename().string() + "-2")).string(),
      folder.parent_path().empty() ? "." : folder.parent_path().string());
}

EventFile::EventFile(const fs::path& folder) : flushed_(std::chrono::steady_clock::now()) {
  make_directories(folder);
  // TensorBoard reads the files of a folder in the order of their names.
  const int64_t time = std::max(int64_t(seconds_now()), newest_events(folder) + 1);
  path_ =
      folder / fmt::format("{}{:010}.{}.{}.nibble", kEventPrefix, time, host_name(), ::getpid());
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw_format("cannot write {}: {}", path_.string(), std::strerror(errno));
  append(version_event(seconds_now()));
}

EventFile::~EventFile() {
  ::fsync(fd_);
  ::close(fd_);
}

void EventFile::append(const std::string& event) {
  const std::string record = tfrecord(event);
  size_t done = 0;
  while (done < record.size()) {
    const ssize_t n = ::write(fd_, record.data() + done, record.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int why = errno;
      // What follows must not stand behind half a record, where no reader would get to.
      if (::ftruncate(fd_, off_t(whole_)) != 0) {
      }
      throw_format("cannot write {}: {}", path_.string(), std::strerror(why));
    }
    done += size_t(n);
  }
  whole_ += record.size();
}

void EventFile::step(int64_t step, const Curves& values) {
  if (step <= last_step_ || last_step_ < 0) append(start_event(seconds_now(), step));
  last_step_ = step;
  beside(step, values);
}

void EventFile::beside(int64_t step, const Curves& values) {
  const double now = seconds_now();
  for (const auto& [tag, value] : values) {
    if (!std::isnan(value)) append(scalar_event(now, step, tag, float(value)));
  }
  constexpr std::chrono::seconds kAtMost(30);
  if (std::chrono::steady_clock::now() - flushed_ > kAtMost) flush();
}

void EventFile::flush() {
  ::fsync(fd_);
  flushed_ = std::chrono::steady_clock::now();
}

}  // namespace nibble

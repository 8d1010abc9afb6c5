// SPDX-License-Identifier: MIT
#include "guard/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "core/error.h"

namespace nibble {
namespace {

// What a child must not see: the key that opens a server.
constexpr std::string_view kSecret = "NIBBLE_API_KEY=";

class SpawnPlan {
 public:
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&files_);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    // Who was started in the background has signals ignored; a child must hear them.
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    flags_ = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&files_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  void write_to_nobody(int as) {
    ::posix_spawn_file_actions_addopen(&files_, as, "/dev/null", O_WRONLY, 0);
  }
  void write_to(int fd, int as) { ::posix_spawn_file_actions_adddup2(&files_, fd, as); }
  void own_session() { flags_ |= POSIX_SPAWN_SETSID; }

  pid_t start(const ChildProgram& program, const std::vector<std::string>& words) {
    // Sockets of a server's clients and locks are ours alone.
    ::posix_spawn_file_actions_addclosefrom_np(&files_, 3);
    ::posix_spawnattr_setflags(&attributes_, short(flags_));
    std::vector<std::string> all = {program.name};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv, env;
    for (std::string& w : all) argv.push_back(w.data());
    argv.push_back(nullptr);
    for (char** e = environ; *e; ++e) {
      if (!std::string_view(*e).starts_with(kSecret)) env.push_back(*e);
    }
    env.push_back(nullptr);
    pid_t pid = 0;
    const int wrong =
        ::posix_spawn(&pid, program.file.c_str(), &files_, &attributes_, argv.data(), env.data());
    if (wrong != 0)
      throw_format("cannot start {} {}: {}", program.name, words.empty() ? "" : words.front(),
                   std::strerror(wrong));
    return pid;
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
  int flags_ = 0;
};

class OutputInMemory {
 public:
  OutputInMemory() : fd_(::memfd_create("nibble", MFD_CLOEXEC)) {
    if (fd_ < 0) throw_format("cannot make a file in memory: {}", std::strerror(errno));
  }
  ~OutputInMemory() { ::close(fd_); }
  OutputInMemory(const OutputInMemory&) = delete;
  OutputInMemory& operator=(const OutputInMemory&) = delete;
  int fd() const { return fd_; }
  std::string text() const {
    constexpr off_t kMost = 16 << 20;
    const off_t size = std::min(::lseek(fd_, 0, SEEK_END), kMost);
    std::string out(size_t(std::max<off_t>(0, size)), '\0');
    const ssize_t n = ::pread(fd_, out.data(), out.size(), 0);
    out.resize(size_t(std::max<ssize_t>(0, n)));
    return out;
  }

 private:
  int fd_;
};

}  // namespace

pid_t start_detached(const ChildProgram& program, const std::vector<std::string>& words,
                     const std::filesystem::path& log) {
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) throw_format("cannot write {}: {}", log.string(), std::strerror(errno));
  try {
    SpawnPlan plan;
    plan.write_to(fd, STDOUT_FILENO);
    plan.write_to(fd, STDERR_FILENO);
    plan.own_session();
    const pid_t pid = plan.start(program, words);
    ::close(fd);
    return pid;
  } catch (...) {
    ::close(fd);
    throw;
  }
}

pid_t start_writing_to(int out, const ChildProgram& program,
                       const std::vector<std::string>& words) {
  SpawnPlan plan;
  plan.write_to(out, STDOUT_FILENO);
  plan.write_to_nobody(STDERR_FILENO);
  return plan.start(program, words);
}

void end_child(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

std::optional<int> collect_child(pid_t pid) {
  int status = 0;
  const pid_t ended = ::waitpid(pid, &status, WNOHANG);
  if (ended < 0 && errno == ECHILD) return kNobodyKnows;
  if (ended != pid) return std::nullopt;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Finished run_shortly(const ChildProgram& program, const std::vector<std::string>& words,
                     std::chrono::milliseconds limit) {
  const OutputInMemory out, err;
  SpawnPlan plan;
  plan.write_to(out.fd(), STDOUT_FILENO);
  plan.write_to(err.fd(), STDERR_FILENO);
  const pid_t pid = plan.start(program, words);
  const auto end = std::chrono::steady_clock::now() + limit;
  Finished f;
  for (;;) {
    if (const auto status = collect_child(pid)) {
      f.status = *status;
      break;
    }
    if (std::chrono::steady_clock::now() > end) {
      end_child(pid);
      f.status = -1;
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  f.out = out.text();
  f.err = err.text();
  return f;
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
#include "guard/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/command_line.h"
#include "core/log.h"
#include "guard/memory_files.h"
#include "guard/process_tree.h"
#include "guard/signal_watch.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
constexpr Seconds kUnobservable{15};            // without a GPU reading, before a warning
constexpr std::chrono::seconds kKillLimit{10};  // a process in the kernel's hands ends late

int64_t to_mib(uint64_t bytes) { return int64_t(bytes >> 20); }

// True when Ctrl+C on the terminal reaches our process group.
bool owns_terminal() {
  const int tty = ::open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (tty < 0) return false;
  const bool owns = ::tcgetpgrp(tty) == ::getpgrp();
  ::close(tty);
  return owns;
}

// In the child: becomes the program, or returns why not (errno).
int become(char* const* argv, pid_t parent, bool own_group) {
  // Should the guard be killed by SIGKILL, at least the program itself goes with it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  if (own_group) ::setpgid(0, 0);
  // nibble ignores these, and that would be inherited.
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  ::execvp(argv[0], argv);
  return errno;
}

pid_t start_program(const std::vector<std::string>& program) {
  std::vector<std::string> words = program;
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  // A group of its own keeps `kill 0` in a script away from us. In the foreground of a terminal
  // the group is shared: the program may read from the terminal, and Ctrl+C is its own business.
  const bool own_group = !owns_terminal();
  int failure[2];  // closed by a successful exec
  if (::pipe2(failure, O_CLOEXEC) != 0) throw_device("guard: no pipe: {}", std::strerror(errno));
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int why = become(argv.data(), self, own_group);
    [[maybe_unused]] const ssize_t n = ::write(failure[1], &why, sizeof why);
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(failure[1]);
  int why = 0;
  ssize_t n = -1;
  while (pid > 0 && (n = ::read(failure[0], &why, sizeof why)) < 0 && errno == EINTR) continue;
  ::close(failure[0]);
  if (pid < 0) throw_device("guard: cannot start a process: {}", std::strerror(fork_error));
  if (n == ssize_t(sizeof why)) {
    ::waitpid(pid, nullptr, 0);
    throw_usage("guard: cannot run '{}': {}", program[0], std::strerror(why));
  }
  return pid;
}

// How long a value has been above its limit.
class OverLimit {
 public:
  explicit OverLimit(std::optional<int64_t> limit_mib) : limit_mib_(limit_mib) {}
  // True when the value has been above for longer than `allowed` (0: at once).
  bool exceeded(int64_t mib, Seconds allowed) {
    if (!limit_mib_ || mib <= *limit_mib_) {
      since_.reset();
      return false;
    }
    if (!since_) since_ = Clock::now();
    return Clock::now() - *since_ >= allowed;
  }

 private:
  std::optional<int64_t> limit_mib_;
  std::optional<Clock::time_point> since_;
};

struct Usage {
  size_t processes = 0;
  int64_t ram_mib = 0;
  int64_t gpu_mib = 0, gpu_total_mib = 0;
};

class Guard {
 public:
  explicit Guard(const GuardSettings& settings)
      : s_(settings), ram_over_(s_.ram_limit_mib), gpu_over_(s_.gpu_limit_mib) {
    if (!s_.nvidia_smi.empty()) gpu_.emplace(s_.nvidia_smi, s_.gpu_at_start);
  }

  ~Guard() {  // an exception on the way must not leave the program alone
    gpu_.reset();
    if (pid_ > 0) tree_.kill_all(kKillLimit);
  }

  ExitCode run() {
    std::string words;
    for (const std::string& w : s_.program) words += " " + shell_quoted(w);
    log_info("[guard] running:{}", words);
    log_info("[guard] guard_pid={}", ::getpid());
    pid_ = start_program(s_.program);
    tree_.follow(pid_);
    log_info("[guard] started pid={}", pid_);
    while (!tree_.end() && !ending_) {
      wait(s_.poll);
      react_to_signals();
      tree_.collect(helpers());
      if (tree_.end() || ending_ || Clock::now() < next_poll_) continue;
      next_poll_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(s_.poll);
      poll_usage();
    }
    if (!ending_) end_leftovers();
    const ChildEnd end = tree_.end().value_or(ChildEnd{});
    peak_.ram_mib = std::max(peak_.ram_mib, to_mib(end.peak_rss_bytes));
    log_info("[guard] peak ram={}MiB{}, {:.1f} s", peak_.ram_mib, gpu_text(peak_),
             Seconds(Clock::now() - start_).count());
    return exit_code(end.wait_status);
  }

 private:
  // Until a signal comes (SIGCHLD among them), or a GPU reading makes progress, or `limit`.
  void wait(Seconds limit) {
    const Seconds until_poll = next_poll_ - Clock::now();
    const double seconds = std::clamp(std::min(until_poll, limit).count(), 0.0, 3600.0);
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    if (gpu_) {
      for (const int fd : gpu_->fds()) fds.push_back({fd, POLLIN, 0});
    }
    ::poll(fds.data(), nfds_t(fds.size()), int(seconds * 1000) + 1);
    if (gpu_) gpu_->service();
  }

  std::vector<pid_t> helpers() const { return gpu_ ? gpu_->pids() : std::vector<pid_t>{}; }
  std::vector<ProcessInfo> processes() const { return tree_.processes(helpers()); }

  void poll_usage() {
    const std::vector<ProcessInfo> tree = processes();
    Usage now;
    now.processes = tree.size();
    const uint64_t in_files = memory_file_bytes(tree);
    now.ram_mib = to_mib(resident_bytes(tree) + in_files);
    // Only where it matters are shared pages told apart.
    if (s_.ram_limit_mib && now.ram_mib > *s_.ram_limit_mib && tree.size() > 1) {
      now.ram_mib = to_mib(proportional_bytes(tree) + in_files);
    }
    if (gpu_) read_gpu(tree, now);
    peak_.ram_mib = std::max(peak_.ram_mib, now.ram_mib);
    peak_.gpu_mib = std::max(peak_.gpu_mib, now.gpu_mib);
    peak_.gpu_total_mib = std::max(peak_.gpu_total_mib, now.gpu_total_mib);
    report(now);
    check_limits(now);
  }

  void read_gpu(const std::vector<ProcessInfo>& tree, Usage& now) {
    if (gpu_->last()) {
      std::vector<pid_t> pids;
      for (const ProcessInfo& p : tree) pids.push_back(p.pid);
      now.gpu_mib = gpu_->last()->mib_of(pids);
      now.gpu_total_mib = gpu_->last()->total_mib;
      gpu_seen_ = Clock::now();
    } else if (!gpu_warned_ && Clock::now() - gpu_seen_ > kUnobservable) {
      gpu_warned_ = true;
      log_warning("[guard] GPU memory could not be read for {:.0f} s: its limit does not hold",
                  kUnobservable.count());
    }
    gpu_->begin();
  }

  std::string gpu_text(const Usage& u) const {
    if (s_.nvidia_smi.empty()) return "";
    return fmt::format(" gpu_mem={}MiB total_gpu_mem={}MiB", u.gpu_mib, u.gpu_total_mib);
  }

  void report(const Usage& now) {
    if (s_.report.count() == 0 || Clock::now() - reported_ < s_.report) return;
    reported_ = Clock::now();
    log_info("[guard] PID={} processes={} ram={}MiB{}", pid_, now.processes, now.ram_mib,
             gpu_text(now));
  }

  void check_limits(const Usage& now) {
    const char* mode = s_.over.count() == 0 ? " (immediate mode)" : "";
    if (ram_over_.exceeded(now.ram_mib, s_.over)) {
      log_line(LogLevel::quiet,
               fmt::format("[guard] RAM limit exceeded{}: tree_mem={}MiB limit={}MiB. killing "
                           "PID={}",
                           mode, now.ram_mib, *s_.ram_limit_mib, pid_));
      reason_ = fmt::format("{} MiB of memory were in use, the limit is {} MiB", now.ram_mib,
                            *s_.ram_limit_mib);
      end_tree(Cause::limit);
    } else if (gpu_over_.exceeded(std::max(now.gpu_mib, now.gpu_total_mib), s_.over)) {
      log_line(LogLevel::quiet,
               fmt::format("[guard] GPU memory limit exceeded{}: pid_mem={}MiB total_mem={}MiB "
                           "limit={}MiB. killing PID={}",
                           mode, now.gpu_mib, now.gpu_total_mib, *s_.gpu_limit_mib, pid_));
      reason_ = fmt::format("{} MiB of GPU memory were in use, the limit is {} MiB",
                            std::max(now.gpu_mib, now.gpu_total_mib), *s_.gpu_limit_mib);
      end_tree(Cause::limit);
    }
  }

  void react_to_signals() {
    while (const auto event = signals_.next()) {
      if (event->signal == SIGCHLD) continue;
      const bool key = event->from_terminal && event->signal == SIGINT;
      if (key && !interrupted_) {
        interrupted_ = true;
        // Shared group: the program has got it, too. Else (it was moved to the foreground later)
        // it gets it from us.
        if (::getpgid(pid_) != ::getpgrp()) signal_all(SIGINT);
        log_line(LogLevel::quiet, "[guard] Ctrl+C: waiting for the program to end; again: kill it");
        continue;
      }
      log_line(LogLevel::quiet,
               fmt::format("[guard] {}: killing PID={}", ::strsignal(event->signal), pid_));
      killed_by_signal_ = event->signal;
      end_tree(Cause::signal);
    }
  }

  void signal_all(int signal) const {
    for (const ProcessInfo& p : processes()) send_signal(p, signal);
  }

  enum class Cause { limit, signal, leftovers };

  // SIGTERM, then the grace. It is over at once when another signal comes to us, or when the
  // memory goes on growing: what is being protected is the machine.
  void let_end() {
    signal_all(SIGTERM);
    signal_all(SIGCONT);  // one that is stopped could not react
    const auto deadline = Clock::now() + s_.grace;
    std::optional<int64_t> most_mib;
    while (Clock::now() < deadline) {
      const std::vector<ProcessInfo> tree = processes();
      if (tree.empty()) return;
      if (s_.ram_limit_mib) {
        const int64_t mib = to_mib(resident_bytes(tree) + memory_file_bytes(tree));
        if (!most_mib) most_mib = mib + *s_.ram_limit_mib / 20;
        if (mib > *most_mib) return;
      }
      next_poll_ = Clock::now() + std::chrono::milliseconds(20);
      wait(deadline - Clock::now());
      tree_.collect(helpers());
      const auto event = signals_.next();
      if (event && event->signal != SIGCHLD) return;
    }
  }

  // SIGTERM, grace, SIGKILL.
  void end_tree(Cause cause) {
    if (ending_) return;
    ending_ = true;
    if (cause == Cause::limit) killed_ = true;
    if (s_.grace.count() > 0) let_end();
    gpu_.reset();
    for (const ProcessInfo& p : tree_.kill_all(kKillLimit)) {  // held by the kernel
      log_warning("[guard] process {} (state {}) does not end", p.pid, p.state);
    }
    if (!killed_) return;
    log_line(LogLevel::quiet, "[guard] killed by watchdog.");
    if (s_.killed) s_.killed(reason_);
  }

  // The program has ended, but what it started in the background has not: no one would watch it.
  void end_leftovers() {
    gpu_.reset();
    if (tree_.empty()) return;
    const size_t n = std::max<size_t>(1, processes().size());
    log_line(LogLevel::quiet,
             fmt::format("[guard] the program has ended; killing {} process{} it left behind", n,
                         n == 1 ? "" : "es"));
    end_tree(Cause::leftovers);
  }

  ExitCode exit_code(int status) const {
    if (killed_) return kKilledByGuard;
    if (killed_by_signal_) return ExitCode{128 + killed_by_signal_};
    return ExitCode{WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)};
  }

  GuardSettings s_;
  SignalWatch signals_{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD};
  ProcessTree tree_;
  std::optional<GpuWatch> gpu_;
  OverLimit ram_over_, gpu_over_;
  pid_t pid_ = -1;
  Usage peak_;
  bool interrupted_ = false, ending_ = false, killed_ = false, gpu_warned_ = false;
  int killed_by_signal_ = 0;
  std::string reason_;  // of the limit that ended it
  Clock::time_point start_ = Clock::now(), next_poll_ = start_, reported_ = start_,
                    gpu_seen_ = start_;
};

}  // namespace

ExitCode run_guarded(const GuardSettings& settings) { return Guard(settings).run(); }

}  // namespace nibble

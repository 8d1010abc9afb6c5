// SPDX-License-Identifier: MIT
// The processes below this one, from /proc: what they hold in memory, and ending them all. A
// process that daemonises (forks twice, starts a session) stays below: orphans come to us.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace nibble {

struct ProcessInfo {
  pid_t pid = 0, parent = 0;
  char state = '?';          // as ps shows it; Z: ended, not yet collected
  int64_t threads = 1;       // of a process whose first thread has ended, those that go on, too
  uint64_t start_ticks = 0;  // since boot; tells a process from a later one with the same number

  // Z with threads: only the first one has ended.
  bool alive() const { return state != 'X' && (state != 'Z' || threads > 1); }
};

std::optional<ProcessInfo> read_process(pid_t pid);  // none when it does not exist
std::vector<ProcessInfo> list_processes();           // all that /proc shows

// Sends a signal unless `process` has ended and its number went to another one.
void send_signal(const ProcessInfo& process, int signal);

struct ChildEnd {
  int wait_status = 0;          // as waitpid gives it
  uint64_t peak_rss_bytes = 0;  // largest single process of it and what it waited for
};

class ProcessTree {
 public:
  // Makes this process the one that orphans below it are given to. What is below it already is
  // left alone for good.
  ProcessTree();
  ~ProcessTree();
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  // Living processes of the tree, without `helpers` (direct children that serve ourselves).
  std::vector<ProcessInfo> processes(std::span<const pid_t> helpers = {}) const;
  // The direct child whose end is of interest.
  void follow(pid_t pid) { followed_ = pid; }
  const std::optional<ChildEnd>& end() const { return end_; }  // of that child, once collected
  // Takes note of what has ended, orphans included; leaves `helpers` to whoever started them.
  void collect(std::span<const pid_t> helpers = {});
  // SIGKILL until nothing is left or `limit` has passed; returns what could not be ended.
  std::vector<ProcessInfo> kill_all(std::chrono::milliseconds limit);
  bool empty();  // nothing is left, for certain; helpers must have ended

 private:
  bool ours(const ProcessInfo& process) const;  // a direct child that came after us

  std::vector<ProcessInfo> before_;  // direct children that were there first
  pid_t followed_ = -1;
  std::optional<ChildEnd> end_;
  int was_subreaper_ = 0;
};

// Resident and swapped bytes. Pages that several processes share count once for each: never too
// little, and cheap to ask for.
uint64_t resident_bytes(std::span<const ProcessInfo> processes);
// The same with shared pages divided among those that share them. Exact, but the kernel walks
// every page for it.
uint64_t proportional_bytes(std::span<const ProcessInfo> processes);

}  // namespace nibble

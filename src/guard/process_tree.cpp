// SPDX-License-Identifier: MIT
#include "guard/process_tree.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace nibble {
namespace {

// "VmRSS:  123 kB" lines of a file in /proc, added up for the keys given; none: unreadable.
std::optional<uint64_t> sum_kib_fields(const std::string& file,
                                       std::initializer_list<std::string_view> keys) {
  std::ifstream in(file);
  std::string line;
  uint64_t kib = 0;
  bool found = false;
  while (std::getline(in, line)) {
    for (const std::string_view key : keys) {
      if (!line.starts_with(key)) continue;
      const char* p = line.c_str() + key.size();
      p += std::strspn(p, " \t");
      uint64_t n = 0;
      found = std::from_chars(p, line.c_str() + line.size(), n).ec == std::errc() || found;
      kib += n;
    }
  }
  if (!found) return std::nullopt;
  return kib;
}

// Numbers in the directory `path`: process or thread ids.
std::vector<pid_t> list_ids(const std::string& path) {
  std::vector<pid_t> ids;
  DIR* dir = ::opendir(path.c_str());
  if (!dir) return ids;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    pid_t id = 0;
    const auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (ec == std::errc() && end == name.data() + name.size()) ids.push_back(id);
  }
  ::closedir(dir);
  return ids;
}

uint64_t resident_kib(const ProcessInfo& p) {
  const auto read = [](const std::string& directory) {
    return sum_kib_fields(directory + "/status", {"VmRSS:", "VmSwap:"});
  };
  const std::string directory = fmt::format("/proc/{}", p.pid);
  if (const auto kib = read(directory)) return *kib;
  if (p.threads < 2) return 0;
  for (const pid_t id : list_ids(directory + "/task")) {  // the first thread has ended
    if (const auto kib = read(fmt::format("{}/task/{}", directory, id))) return *kib;
  }
  return 0;
}

bool same(const ProcessInfo& a, const ProcessInfo& b) {
  return a.pid == b.pid && a.start_ticks == b.start_ticks;
}

}  // namespace

std::optional<ProcessInfo> read_process(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(in, text, '\0')) return std::nullopt;
  // "pid (name) state ppid ... [22] start": the name may hold blanks and parentheses.
  const size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(after_name + 1));
  ProcessInfo p;
  p.pid = pid;
  std::string skipped;
  rest >> p.state >> p.parent;
  for (int field = 5; field <= 19; ++field) rest >> skipped;  // proc(5) numbers them
  rest >> p.threads >> skipped >> p.start_ticks;
  if (!rest) return std::nullopt;
  return p;
}

std::vector<ProcessInfo> list_processes() {
  std::vector<ProcessInfo> list;
  for (const pid_t pid : list_ids("/proc")) {
    if (const auto p = read_process(pid)) list.push_back(*p);
  }
  return list;
}

void send_signal(const ProcessInfo& process, int signal) {
  const auto now = read_process(process.pid);
  if (now && same(*now, process)) ::kill(process.pid, signal);
}

ProcessTree::ProcessTree() {
  const pid_t self = ::getpid();
  for (const ProcessInfo& p : list_processes()) {
    if (p.parent == self) before_.push_back(p);
  }
  ::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_, 0, 0, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

ProcessTree::~ProcessTree() { ::prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_, 0, 0, 0); }

bool ProcessTree::ours(const ProcessInfo& process) const {
  return process.parent == ::getpid() &&
         std::ranges::none_of(before_, [&](const auto& b) { return same(b, process); });
}

std::vector<ProcessInfo> ProcessTree::processes(std::span<const pid_t> helpers) const {
  const std::vector<ProcessInfo> all = list_processes();
  std::vector<ProcessInfo> tree;
  for (const ProcessInfo& p : all) {
    if (ours(p) && std::ranges::find(helpers, p.pid) == helpers.end()) tree.push_back(p);
  }
  for (size_t i = 0; i < tree.size(); ++i) {  // grows while it is walked
    const pid_t parent = tree[i].pid;
    std::ranges::copy_if(all, std::back_inserter(tree),
                         [&](const ProcessInfo& p) { return p.parent == parent; });
  }
  std::erase_if(tree, [](const ProcessInfo& p) { return !p.alive(); });
  return tree;
}

void ProcessTree::collect(std::span<const pid_t> helpers) {
  if (followed_ > 0 && !end_) {
    ChildEnd end;
    rusage usage{};
    if (::wait4(followed_, &end.wait_status, WNOHANG, &usage) == followed_) {
      end.peak_rss_bytes = uint64_t(usage.ru_maxrss) * 1024;
      end_ = end;
    }
  }
  for (const ProcessInfo& p : list_processes()) {
    const bool orphan =
        ours(p) && p.pid != followed_ && std::ranges::find(helpers, p.pid) == helpers.end();
    if (orphan && !p.alive()) ::waitpid(p.pid, nullptr, WNOHANG);
  }
}

bool ProcessTree::empty() {
  collect();
  if (!before_.empty()) return processes().empty();
  // /proc is not read in one moment: one process may end and its child appear meanwhile. Whoever
  // lives below us has an ancestor that is our child, and waitid knows those exactly.
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

std::vector<ProcessInfo> ProcessTree::kill_all(std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  while (!empty() && Clock::now() < deadline) {
    // Stopped first, all of them: what is stopped cannot fork while the others are killed.
    for (const ProcessInfo& p : processes()) send_signal(p, SIGSTOP);
    for (const ProcessInfo& p : processes()) send_signal(p, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return processes();
}

uint64_t resident_bytes(std::span<const ProcessInfo> processes) {
  uint64_t kib = 0;
  for (const ProcessInfo& p : processes) kib += resident_kib(p);
  return kib * 1024;
}

uint64_t proportional_bytes(std::span<const ProcessInfo> processes) {
  uint64_t kib = 0;
  for (const ProcessInfo& p : processes) {
    const auto own =
        sum_kib_fields(fmt::format("/proc/{}/smaps_rollup", p.pid), {"Pss:", "SwapPss:"});
    kib += own ? *own : resident_kib(p);  // not ours to read: the upper bound
  }
  return kib * 1024;
}

}  // namespace nibble

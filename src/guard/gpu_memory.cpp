// SPDX-License-Identifier: MIT
#include "guard/gpu_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "core/error.h"
#include "guard/child_process.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;
// A driver in trouble can make nvidia-smi hang; then the reading counts as failed.
constexpr std::chrono::seconds kReadingLimit{10};

std::string_view trimmed(std::string_view s) {
  const size_t begin = s.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(" \t\r") - begin + 1);
}

// A process or MiB: 31 bits are more than either has, and no sum of lines leaves 64.
std::optional<int64_t> whole_number(std::string_view s) {
  int32_t n = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (ec != std::errc() || end != s.data() + s.size() || n < 0) return std::nullopt;
  return n;
}

// "5638MiB" -> 5638
std::optional<int64_t> mib_number(std::string_view s) {
  if (!s.ends_with("MiB")) return std::nullopt;
  return whole_number(s.substr(0, s.size() - 3));
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (const auto line = trimmed(text.substr(0, end)); !line.empty()) lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

int64_t GpuReading::mib_of(std::span<const pid_t> pids) const {
  int64_t sum = 0;
  for (const GpuProcess& p : processes) {
    if (std::ranges::find(pids, p.pid) != pids.end()) sum += p.mib;
  }
  return sum;
}

std::filesystem::path find_nvidia_smi() {
  const char* path = std::getenv("PATH");
  std::istringstream directories(std::string(path ? path : "") + ":/usr/lib/wsl/lib");
  std::string directory;
  while (std::getline(directories, directory, ':')) {
    const std::filesystem::path file =
        std::filesystem::path(directory.empty() ? "." : directory) / "nvidia-smi";
    std::error_code ec;
    if (std::filesystem::is_regular_file(file, ec) && ::access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return {};
}

std::optional<std::vector<GpuProcess>> parse_compute_apps(std::string_view text) {
  std::vector<GpuProcess> processes;
  for (const std::string_view line : lines_of(text)) {
    const size_t comma = line.find(',');
    if (comma == std::string_view::npos) return std::nullopt;
    const auto pid = whole_number(trimmed(line.substr(0, comma)));
    const auto mib = whole_number(trimmed(line.substr(comma + 1)));
    if (!pid || !mib) return std::nullopt;
    processes.push_back({pid_t(*pid), *mib});
  }
  return processes;
}

std::optional<int64_t> parse_memory_used(std::string_view text) {
  std::optional<int64_t> sum;
  for (const std::string_view line : lines_of(text)) {
    const auto mib = whole_number(line);
    if (!mib) return std::nullopt;
    sum = sum.value_or(0) + *mib;
  }
  return sum;
}

std::optional<GpuReading> parse_smi_table(std::string_view text) {
  GpuReading reading;
  int64_t used = 0, by_processes = 0;
  bool table = false;
  for (const std::string_view line : lines_of(text)) {
    table = table || line.find("Processes:") != std::string_view::npos;
    std::istringstream in{std::string(line)};
    std::vector<std::string> words;
    for (std::string w; in >> w;) words.push_back(w);
    for (size_t i = 0; i + 2 < words.size(); ++i) {
      const auto mib = mib_number(words[i]);
      if (mib && words[i + 1] == "/" && mib_number(words[i + 2])) used += *mib;  // of a GPU
    }
    if (words.size() < 4 || words.front() != "|" || words.back() != "|") continue;
    const auto mib = mib_number(words[words.size() - 2]);
    if (!mib) continue;
    for (size_t i = 1; i + 2 < words.size(); ++i) {
      const bool type = words[i] == "C" || words[i] == "G" || words[i] == "C+G";
      const auto pid = type ? whole_number(words[i - 1]) : std::nullopt;
      if (!pid) continue;
      reading.processes.push_back({pid_t(*pid), *mib});
      by_processes += *mib;
      break;
    }
  }
  if (!table) return std::nullopt;
  reading.total_mib = std::max(used, by_processes);
  return reading;
}

BackgroundOutput::BackgroundOutput(const std::filesystem::path& program,
                                   const std::vector<std::string>& args) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  try {
    pid_ = start_writing_to(ends[1], {program, program.string()}, args);
    fd_ = ends[0];
  } catch (const FormatError&) {  // done(), and there is no output
    ::close(ends[0]);
  }
  ::close(ends[1]);
}

BackgroundOutput::~BackgroundOutput() {
  if (fd_ >= 0) ::close(fd_);
  if (pid_ >= 0) end_child(pid_);
}

void BackgroundOutput::service() {
  constexpr size_t kMostOutput = 1 << 20;
  char block[4096];
  while (fd_ >= 0) {
    const ssize_t n = ::read(fd_, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0 || text_.size() > kMostOutput) {
      ::close(std::exchange(fd_, -1));
      break;
    }
    text_.append(block, size_t(n));
  }
  const auto status = pid_ < 0 ? std::nullopt : collect_child(pid_);
  if (!status) return;
  pid_ = -1;
  // Where SIGCHLD is ignored the kernel has collected it, and nobody knows: its text will say.
  if (*status == 0 || *status == kNobodyKnows) result_ = std::move(text_);
}

void GpuWatch::start(std::initializer_list<std::string> args) {
  runs_.push_back(std::make_unique<BackgroundOutput>(nvidia_smi_, args));
}

void GpuWatch::begin() {
  if (busy()) return;
  started_ = Clock::now();
  const std::string plain = "--format=csv,noheader,nounits";
  start({"--query-compute-apps=pid,used_memory", plain});
  start({"--query-gpu=memory.used", plain});
}

std::vector<int> GpuWatch::fds() const {
  std::vector<int> list;
  for (const auto& run : runs_) {
    if (run->fd() >= 0) list.push_back(run->fd());
  }
  return list;
}

std::vector<pid_t> GpuWatch::pids() const {
  std::vector<pid_t> list;
  for (const auto& run : runs_) {
    if (!run->done()) list.push_back(run->pid());
  }
  return list;
}

void GpuWatch::finish_queries() {
  const auto text = [&](size_t i) { return runs_[i]->output().value_or("?"); };
  const auto apps = parse_compute_apps(text(0));
  const auto used = parse_memory_used(text(1));
  runs_.clear();
  if (!apps || !used) {
    start({});  // the table knows what the queries do not
    return;
  }
  GpuReading reading{*apps, 0};
  for (const GpuProcess& p : *apps) reading.total_mib += p.mib;
  reading.total_mib = std::max(reading.total_mib, *used);
  last_ = std::move(reading);
}

void GpuWatch::service() {
  if (!busy()) return;
  for (const auto& run : runs_) run->service();
  if (std::ranges::all_of(runs_, [](const auto& run) { return run->done(); })) {
    if (runs_.size() == 2) return finish_queries();
    last_ = parse_smi_table(runs_[0]->output().value_or(""));
    runs_.clear();
  } else if (Clock::now() - started_ > kReadingLimit) {
    last_.reset();
    runs_.clear();
  }
}

std::optional<GpuReading> read_gpu_memory(const std::filesystem::path& nvidia_smi,
                                          std::chrono::milliseconds limit) {
  GpuWatch watch(nvidia_smi);
  const auto deadline = Clock::now() + limit;
  watch.begin();
  while (watch.busy()) {
    if (Clock::now() >= deadline) return std::nullopt;
    std::vector<pollfd> polled;
    for (const int fd : watch.fds()) polled.push_back({fd, POLLIN, 0});
    ::poll(polled.data(), nfds_t(polled.size()), 5);
    watch.service();
  }
  return watch.last();
}

}  // namespace nibble

// SPDX-License-Identifier: MIT
// What is in use on the GPUs of this machine, as nvidia-smi says. Several GPUs are added up.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble {

struct GpuProcess {
  pid_t pid = 0;
  int64_t mib = 0;
};

struct GpuReading {
  std::vector<GpuProcess> processes;
  int64_t total_mib = 0;  // of all processes, those of others included

  int64_t mib_of(std::span<const pid_t> pids) const;
};

// nvidia-smi in PATH, or where WSL keeps it; empty when there is none.
std::filesystem::path find_nvidia_smi();

// The texts nvidia-smi prints. None: the text does not say (an error message, "[N/A]").
std::optional<std::vector<GpuProcess>> parse_compute_apps(std::string_view text);
std::optional<int64_t> parse_memory_used(std::string_view text);
// The table for people: the only source on machines with unified memory, where the queries say
// "Not Supported".
std::optional<GpuReading> parse_smi_table(std::string_view text);

// One program whose output is collected while other things go on.
class BackgroundOutput {
 public:
  BackgroundOutput(const std::filesystem::path& program, const std::vector<std::string>& args);
  ~BackgroundOutput();  // kills it when it still runs
  BackgroundOutput(const BackgroundOutput&) = delete;
  BackgroundOutput& operator=(const BackgroundOutput&) = delete;

  int fd() const { return fd_; }  // readable when there is something to do; -1 when it has ended
  pid_t pid() const { return pid_; }  // -1 when it has ended
  void service();                     // reads what is there, without waiting
  bool done() const { return pid_ < 0; }
  // Its output; none when it failed, was killed or could not be started.
  const std::optional<std::string>& output() const { return result_; }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string text_;
  std::optional<std::string> result_;
};

// Readings one after another, none of which is waited for.
class GpuWatch {
 public:
  // `first`: a reading that has been made already.
  explicit GpuWatch(std::filesystem::path nvidia_smi, std::optional<GpuReading> first = {})
      : nvidia_smi_(std::move(nvidia_smi)), last_(std::move(first)) {}

  void begin();  // a new reading, unless one is under way
  bool busy() const { return !runs_.empty(); }
  std::vector<int> fds() const;                                    // to poll for
  std::vector<pid_t> pids() const;                                 // our own nvidia-smi processes
  void service();                                                  // after poll
  const std::optional<GpuReading>& last() const { return last_; }  // none: the last one failed

 private:
  void start(std::initializer_list<std::string> args);
  void finish_queries();
  std::filesystem::path nvidia_smi_;
  std::vector<std::unique_ptr<BackgroundOutput>> runs_;  // the two queries, or the table alone
  std::chrono::steady_clock::time_point started_{};
  std::optional<GpuReading> last_;
};

// One reading, waited for; none when it fails or takes longer than `limit`.
std::optional<GpuReading> read_gpu_memory(const std::filesystem::path& nvidia_smi,
                                          std::chrono::milliseconds limit);

}  // namespace nibble

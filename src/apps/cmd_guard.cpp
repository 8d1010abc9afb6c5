// SPDX-License-Identifier: MIT
// nibble guard: a command under a memory limit.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/command.h"
#include "apps/options/legacy_programs.h"
#include "core/log.h"
#include "guard/gpu_memory.h"
#include "guard/guard.h"
#include "runlog/run_recorder.h"

namespace nibble {
namespace {

constexpr double kShortestPoll = 0.05, kMostGb = 1e6, kMostSecs = 1e6;

struct GuardOptions {
  std::vector<std::string> program;
  std::optional<double> ram_limit_gb, gpu_limit_gb, over_secs, poll_secs;
  double grace_secs = 2, report_secs = 10;

  void visit_fields(Fields& f) {
    f.add(program, {.flag = "PROGRAM",
                    .help = "What to run; everything after it belongs to it. Write -- before one "
                            "whose name starts with a dash. The word script before it may stay",
                    .required = true,
                    .rest = true});
    f.section("Limits");
    f.add(ram_limit_gb,
          {.flag = "--ram-limit-gb",
           .help = "Memory the program and everything it starts may have together, resident and "
                   "swapped, in units of 1024 MiB",
           .value = "GB",
           .most = kMostGb,
           .above = 0});
    f.add(gpu_limit_gb,
          {.flag = "--gpu-limit-gb",
           .help = "GPU memory that may be in use, by the program or by all processes together; "
                   "default: GPU_LIMIT_GB in the environment, or no limit",
           .value = "GB",
           .aliases = {"-l"},
           .most = kMostGb,
           .above = 0});
    f.add(over_secs,
          {.flag = "--gpu-over-secs",
           .help = "How long a limit (RAM, too) may be exceeded, 0: not at all; default: "
                   "GPU_OVER_SECS in the environment, or 0",
           .value = "S",
           .aliases = {"--over-secs", "-o"},
           .least = 0,
           .most = kMostSecs});
    f.add(poll_secs, {.flag = "--gpu-poll-secs",
                      .help = "Time between two looks at the memory, at least 0.05; default: "
                              "GPU_POLL_SECS in the environment, or 0.5",
                      .value = "S",
                      .aliases = {"--poll-secs", "-p"},
                      .most = kMostSecs,
                      .above = 0});
    f.section("Output and end");
    f.add(report_secs, {.flag = "--report-secs",
                        .help = "Time between two lines on usage; 0: none",
                        .value = "S",
                        .least = 0,
                        .most = kMostSecs});
    f.add(grace_secs,
          {.flag = "--grace-secs",
           .help = "Time the processes have to end by themselves (SIGTERM) before they "
                   "are killed (SIGKILL); 0: none. What goes on growing has none either",
           .value = "S",
           .least = 0,
           .most = kMostSecs});
  }
};

struct Range {
  double least, most;
  bool least_itself;  // allowed
};

// The option, or the environment variable of the predecessor's guard.
std::optional<double> option_or_environment(const std::optional<double>& option, const char* name,
                                            const Range& range) {
  const char* text = std::getenv(name);
  if (option || !text || !*text) return option;
  double value = 0;
  const std::string wrong = parse_value(text, value);
  const bool inside =
      (value > range.least || (range.least_itself && value == range.least)) && value <= range.most;
  if (!wrong.empty() || !inside) {
    throw_usage("{}={} in the environment {}: expected a number {} {}", name, text,
                wrong.empty() ? "is out of range" : wrong, range.least_itself ? ">=" : ">",
                range.least);
  }
  return value;
}

// Without a limit on it, GPU memory is watched where that is possible.
void find_gpus(GuardSettings& s) {
  s.nvidia_smi = find_nvidia_smi();
  std::string problem = "there is no nvidia-smi in PATH";
  if (!s.nvidia_smi.empty()) {
    s.gpu_at_start = read_gpu_memory(s.nvidia_smi, std::chrono::seconds(10));
    if (s.gpu_at_start) return;
    problem = s.nvidia_smi.string() + " gives no numbers";
  }
  if (s.gpu_limit_mib) throw_usage("guard: the GPU limit cannot be watched: {}", problem);
  log_info("[guard] GPU memory is not watched: {}", problem);
  s.nvidia_smi.clear();
}

std::optional<int64_t> mib(const std::optional<double>& gb) {
  if (!gb) return std::nullopt;
  return std::max<int64_t>(1, int64_t(*gb * 1024));
}

// `guard ... script FILE ARGS`: the predecessor's word for "what follows is the program". Taken for
// a program it would be util-linux's script, which empties FILE to write a session into it.
std::vector<std::string> without_script_word(const std::vector<std::string>& program) {
  if (program[0] != "script" || program.size() < 2 || program[1].starts_with("-")) return program;
  log_info(
      "[guard] 'script' is taken as the word before a program, as it was in the predecessor; "
      "the program of that name is started by its path");
  std::vector<std::string> rest(program.begin() + 1, program.end());
  // The predecessor ran a file of this folder, whether or not it could be found in PATH.
  const bool here = rest[0].find('/') == std::string::npos && std::filesystem::exists(rest[0]);
  if (here) rest[0] = "./" + rest[0];
  // A program of the predecessor is a command of this one now.
  const LegacyProgram* legacy = find_legacy_program(rest[0]);
  if (legacy && ::access(rest[0].c_str(), X_OK) != 0) {
    rest.insert(rest.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
  }
  return rest;
}

// The runs of nibble that go on below a guard, which it can explain when it has ended them.
class GuardedRuns {
 public:
  GuardedRuns() {
    std::error_code ec;
    std::string name = (std::filesystem::temp_directory_path(ec) / "nibble-guard-XXXXXX").string();
    const int fd = ec ? -1 : ::mkstemp(name.data());
    if (fd < 0) return;  // without it records say less
    ::close(fd);
    list_ = name;
    ::setenv(kGuardedRunsVariable, list_.c_str(), 1);
  }
  ~GuardedRuns() {
    std::error_code ec;
    if (!list_.empty()) std::filesystem::remove(list_, ec);
  }
  GuardedRuns(const GuardedRuns&) = delete;
  GuardedRuns& operator=(const GuardedRuns&) = delete;

  void explain(const std::string& reason) const {
    if (list_.empty()) return;
    std::ifstream in(list_);
    for (std::string folder; std::getline(in, folder);) {
      explain_killed_run(folder, kKilledByGuard, "nibble guard ended it: " + reason);
    }
  }

 private:
  std::string list_;
};

ExitCode run_guard(const GuardOptions& o, Io& io) {
  const auto gpu_gb = option_or_environment(o.gpu_limit_gb, "GPU_LIMIT_GB", {0, kMostGb, false});
  const double over =
      option_or_environment(o.over_secs, "GPU_OVER_SECS", {0, kMostSecs, true}).value_or(0);
  const double poll =
      option_or_environment(o.poll_secs, "GPU_POLL_SECS", {0, kMostSecs, false}).value_or(0.5);
  if (!gpu_gb && !o.ram_limit_gb) {
    throw_usage("guard: no limit is given; use --ram-limit-gb or --gpu-limit-gb");
  }
  GuardSettings s;
  s.program = without_script_word(o.program);
  s.ram_limit_mib = mib(o.ram_limit_gb);
  s.gpu_limit_mib = mib(gpu_gb);
  s.over = std::chrono::duration<double>(over);
  s.poll = std::chrono::duration<double>(std::max(poll, kShortestPoll));
  s.grace = std::chrono::duration<double>(o.grace_secs);
  s.report = std::chrono::duration<double>(o.report_secs);
  find_gpus(s);
  const auto line = [&](const char* what, double gb, int64_t limit_mib) {
    log_info("[guard] {}limit={:g}GB ({}MiB), over={:g}s, poll={:g}s", what, gb, limit_mib, over,
             s.poll.count());
  };
  if (gpu_gb) line("", *gpu_gb, *s.gpu_limit_mib);
  if (o.ram_limit_gb) line("ram ", *o.ram_limit_gb, *s.ram_limit_mib);
  io.out.flush();
  const GuardedRuns runs;
  s.killed = [&](const std::string& reason) { runs.explain(reason); };
  return run_guarded(s);
}

}  // namespace

Command guard_command() {
  return make_command<GuardOptions>(
      "guard", "Run a program under a memory limit",
      "Watches the memory of a program and of everything it starts, in RAM and on NVIDIA GPUs. "
      "When a limit is exceeded, all of it is killed and the exit code is 124; else it is the "
      "program's own (128 + N when signal N ended it). Processes the program leaves running are "
      "ended with it, daemons included.",
      run_guard);
}

}  // namespace nibble

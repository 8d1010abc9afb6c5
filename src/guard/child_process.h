// SPDX-License-Identifier: MIT
// Programs as processes of their own: words in, no shell, none of our files and signals, and not
// the key that opens `nibble serve`.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace nibble {

// What runs: where nothing is said this very program, also when its file was replaced since.
struct ChildProgram {
  std::filesystem::path file = "/proc/self/exe";
  std::string name = "nibble";  // its first word, as records show it
};

// A process that goes on when this one ends: it has a session of its own. It reads nothing and
// writes into `log`. Throws FormatError.
pid_t start_detached(const ChildProgram& program, const std::vector<std::string>& words,
                     const std::filesystem::path& log);
// One that reads nothing, writes into `out` (a descriptor) and complains to nobody. Throws
// FormatError.
pid_t start_writing_to(int out, const ChildProgram& program, const std::vector<std::string>& words);
// How it ended, once: an exit status, or 128 and the signal, or kNobodyKnows; none while it runs.
constexpr int kNobodyKnows = 255;  // somebody had SIGCHLD ignored when this program was started
std::optional<int> collect_child(pid_t pid);
// SIGKILL, and waits for the end.
void end_child(pid_t pid);

struct Finished {
  int status = 0;  // as above; -1: it was ended after `limit`
  std::string out, err;
};
// Waits for the end of one that is over soon.
Finished run_shortly(const ChildProgram& program, const std::vector<std::string>& words,
                     std::chrono::milliseconds limit);

}  // namespace nibble

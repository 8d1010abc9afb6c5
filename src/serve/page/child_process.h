// SPDX-License-Identifier: MIT
// nibble's own commands as processes of their own: words in, no shell.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace nibble {

// What runs: this very program, also when its file was replaced since.
struct OwnProgram {
  std::filesystem::path file = "/proc/self/exe";
  std::string name = "nibble";  // its first word, as records show it
};

// A process that goes on when this one ends: it has a session of its own, and none of our files. It
// reads nothing and writes into `log`. Throws FormatError.
pid_t start_detached(const OwnProgram& program, const std::vector<std::string>& words,
                     const std::filesystem::path& log);
// How it ended, once: an exit status, or 128 and the signal, or 255 where nobody can say any more;
// none while it runs.
std::optional<int> collect_child(pid_t pid);

struct Finished {
  int status = 0;  // as above; -1: it was ended after `limit`
  std::string out, err;
};
// Waits for the end of one that is over soon.
Finished run_shortly(const OwnProgram& program, const std::vector<std::string>& words,
                     std::chrono::milliseconds limit);

}  // namespace nibble

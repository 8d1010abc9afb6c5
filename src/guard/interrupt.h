// SPDX-License-Identifier: MIT
// Ctrl+C as a request: the work at hand ends at a good place. A second one ends the program at
// once, without leaving half-written files. A signal that was ignored stays ignored.
#pragma once
#include <csignal>
#include <utility>
#include <vector>

#include "core/error.h"

namespace nibble {

// SIGTERM may be such a request as well, where there is something to save.
enum class TerminateIs { request, end };

class InterruptGuard {
 public:
  // Counts from nothing; inside another guard it goes on counting, so that no request is lost.
  explicit InterruptGuard(TerminateIs terminate);
  ~InterruptGuard();  // signals do what they did before
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested();
  // The signal of the first request since the last guard was made; 0: there was none.
  static int signal();

 private:
  std::vector<std::pair<int, void (*)(int)>> before_;
};

// What a shell says of a program that a signal ended: 130 (SIGINT), 143 (SIGTERM).
constexpr ExitCode interrupted_by(int signal) { return ExitCode{128 + signal}; }
constexpr bool was_interrupted(ExitCode code) { return int(code) > 128; }

// Whoever started us had the signal ignored (nohup, a job in the background): it stays so.
bool is_ignored(int signal);

}  // namespace nibble

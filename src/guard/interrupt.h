// SPDX-License-Identifier: MIT
// Ctrl+C as a request: the work at hand ends at a good place. A second one ends the program at
// once, without leaving half-written files.
#pragma once
#include <csignal>

namespace nibble {

// SIGTERM may be such a request as well, where there is something to save.
enum class TerminateIs { request, end };

class InterruptGuard {
 public:
  explicit InterruptGuard(TerminateIs terminate);
  ~InterruptGuard();  // signals do what they did before
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested();

 private:
  void (*interrupt_before_)(int);
  void (*terminate_before_)(int) = nullptr;
  TerminateIs terminate_;
};

}  // namespace nibble

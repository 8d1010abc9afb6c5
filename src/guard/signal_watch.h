// SPDX-License-Identifier: MIT
// Signals as events that a poll loop reads, instead of handlers that may do almost nothing.
#pragma once
#include <csignal>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

namespace nibble {

struct SignalEvent {
  int signal = 0;
  int from_terminal = 0;  // 1: a key (Ctrl+C), which the whole foreground group has received
};

// Takes the given signals over while it lives; one at a time in a process. A signal that was
// ignored before (nohup) stays ignored.
class SignalWatch {
 public:
  explicit SignalWatch(std::initializer_list<int> signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return read_end_; }  // readable when an event waits
  std::optional<SignalEvent> next();    // without waiting

 private:
  int read_end_ = -1;
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace nibble

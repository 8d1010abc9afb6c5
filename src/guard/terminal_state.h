// SPDX-License-Identifier: MIT
// A terminal whose modes are changed for a while. However the program ends, by itself, by a signal
// or by a watchdog, and while it is stopped (Ctrl+Z), the terminal is as it was: else the shell
// after it would not show what is typed.
#pragma once
#include <termios.h>

namespace nibble {

// One at a time in a process.
class TerminalState {
 public:
  // `keyboard` is read from, `screen` is drawn on. Remembers the modes; changes none.
  TerminalState(int keyboard, int screen);
  ~TerminalState();  // as it was
  TerminalState(const TerminalState&) = delete;
  TerminalState& operator=(const TerminalState&) = delete;

  const termios& before() const { return before_; }
  void set(const termios& modes);
  // Pasted text arrives between marks (bracketed paste), so that it can be told from typed text.
  void mark_pastes();

 private:
  termios before_{};
  void (*stopped_before_)(int) = nullptr;  // what SIGTSTP did; null: it was ignored and is so
};

// As it was when a TerminalState was made; nothing where there is none. Safe to call in a signal
// handler.
void restore_terminal() noexcept;

}  // namespace nibble

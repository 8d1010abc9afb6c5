// SPDX-License-Identifier: MIT
#include "guard/terminal_state.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace nibble {
namespace {

std::atomic<int> g_keyboard{-1}, g_screen{-1};
std::atomic<bool> g_changed{false}, g_marks{false};
termios g_before{};

constexpr char kMarksOn[] = "\x1b[?2004h", kMarksOff[] = "\x1b[?2004l";

// A program in the background that changes modes would be stopped (SIGTTOU) while it ends.
void set_modes(const termios& modes) {
  sigset_t block, before;
  sigemptyset(&block);
  sigaddset(&block, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &block, &before);
  while (::tcsetattr(g_keyboard, TCSADRAIN, &modes) != 0 && errno == EINTR) continue;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void restore_terminal() noexcept {
  const int saved = errno;
  if (g_marks.exchange(false)) {
    [[maybe_unused]] const ssize_t n = ::write(g_screen, kMarksOff, sizeof kMarksOff - 1);
  }
  if (g_changed.exchange(false)) set_modes(g_before);
  errno = saved;
}

TerminalState::TerminalState(int keyboard, int screen) {
  ::tcgetattr(keyboard, &before_);
  g_before = before_;
  g_keyboard = keyboard;
  g_screen = screen;
}

TerminalState::~TerminalState() {
  restore_terminal();
  g_keyboard = g_screen = -1;
}

void TerminalState::set(const termios& modes) {
  g_changed = true;  // first: a signal may come in between
  set_modes(modes);
}

void TerminalState::put_back() { restore_terminal(); }

void TerminalState::mark_pastes() {
  g_marks = true;
  [[maybe_unused]] const ssize_t n = ::write(g_screen, kMarksOn, sizeof kMarksOn - 1);
}

}  // namespace nibble

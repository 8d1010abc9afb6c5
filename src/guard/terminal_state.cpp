// SPDX-License-Identifier: MIT
#include "guard/terminal_state.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "guard/interrupt.h"

namespace nibble {
namespace {

std::atomic<int> g_keyboard{-1}, g_screen{-1};
std::atomic<bool> g_changed{false}, g_marks{false};
termios g_before{}, g_now{};

constexpr char kMarksOn[] = "\x1b[?2004h", kMarksOff[] = "\x1b[?2004l";

// Another job has the terminal: its modes are none of ours.
bool is_in_background() {
  const pid_t foreground = ::tcgetpgrp(g_keyboard);
  return foreground > 0 && foreground != ::getpgrp();
}

// Without waiting for what is still to be shown: a terminal that shows nothing any more must not
// keep a program from ending.
void set_modes(const termios& modes) {
  while (::tcsetattr(g_keyboard, TCSANOW, &modes) != 0 && errno == EINTR) continue;
}

void switch_marks(bool on) {
  g_marks = on;
  const char* const sequence = on ? kMarksOn : kMarksOff;
  [[maybe_unused]] const ssize_t n = ::write(g_screen, sequence, sizeof kMarksOn - 1);
}

// Ctrl+Z while no line is edited, or a stop from elsewhere: the shell gets its terminal as it was,
// and it is ours again when the program goes on in the foreground.
extern "C" void stop_here(int) {
  const int saved = errno;
  const bool changed = g_changed, marks = g_marks;
  restore_terminal();
  std::signal(SIGTSTP, SIG_DFL);
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  std::raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, &before);  // stops here
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGTSTP, stop_here);
  if (!is_in_background()) {
    if (changed) {
      g_changed = true;
      set_modes(g_now);
    }
    if (marks) switch_marks(true);
  }
  errno = saved;
}

}  // namespace

void restore_terminal() noexcept {
  const int saved = errno;
  const bool changed = g_changed.exchange(false), marks = g_marks.exchange(false);
  if ((changed || marks) && !is_in_background()) {
    if (changed) set_modes(g_before);
    if (marks) switch_marks(false);
  }
  errno = saved;
}

TerminalState::TerminalState(int keyboard, int screen) {
  ::tcgetattr(keyboard, &before_);
  g_before = before_;
  g_keyboard = keyboard;
  g_screen = screen;
  if (!is_ignored(SIGTSTP)) stopped_before_ = std::signal(SIGTSTP, stop_here);
}

TerminalState::~TerminalState() {
  restore_terminal();
  if (stopped_before_ != nullptr) std::signal(SIGTSTP, stopped_before_);
  g_keyboard = g_screen = -1;
}

void TerminalState::set(const termios& modes) {
  g_now = modes;
  g_changed = true;  // first: a signal may come in between
  set_modes(modes);  // in the background this stops the program until it is in the foreground
}

void TerminalState::mark_pastes() { switch_marks(true); }

}  // namespace nibble

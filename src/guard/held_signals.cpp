// SPDX-License-Identifier: MIT
#include "guard/held_signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace nibble {
namespace {

std::atomic<int> g_held{0};
std::atomic<const char*> g_what{nullptr};

extern "C" void hold_signal(int signal) {
  const int saved = errno;
  int none = 0;
  if (g_held.compare_exchange_strong(none, signal)) {
    const auto say = [](const char* text) {
      [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, std::strlen(text));
    };
    say("nibble: ");
    say(g_what.load());
    say(" is finished first\n");
  }
  errno = saved;
}

}  // namespace

HeldSignals::HeldSignals(const char* what) {
  g_held = 0;
  g_what = what;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old {
    }, action{};
    ::sigaction(signal, nullptr, &old);
    if (!(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_IGN) continue;
    action.sa_handler = hold_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
    before_.emplace_back(signal, old);
  }
}

HeldSignals::~HeldSignals() {
  for (const auto& [signal, old] : before_) ::sigaction(signal, &old, nullptr);
  if (const int signal = g_held.exchange(0)) ::raise(signal);
}

}  // namespace nibble

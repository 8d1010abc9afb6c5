// SPDX-License-Identifier: MIT
#include "guard/interrupt.h"

#include <atomic>
#include <cstdlib>

#include "core/durable/last_words.h"
#include "core/durable/temporary.h"
#include "guard/terminal_state.h"

namespace nibble {
namespace {

std::atomic<int> g_requests{0}, g_signal{0}, g_guards{0};
extern "C" void count_request(int signal) {
  if (++g_requests < 2) {
    g_signal = signal;
    return;
  }
  restore_terminal();
  remove_temporary_files();
  write_last_words();
  std::_Exit(128 + signal);
}

}  // namespace

InterruptGuard::InterruptGuard(TerminateIs terminate) {
  if (g_guards++ == 0) g_requests = g_signal = 0;
  for (const int signal : {SIGINT, SIGTERM}) {
    const bool wanted = signal == SIGINT || terminate == TerminateIs::request;
    if (!wanted || is_ignored(signal)) continue;
    before_.emplace_back(signal, std::signal(signal, count_request));
  }
}

InterruptGuard::~InterruptGuard() {
  for (const auto& [signal, handler] : before_) std::signal(signal, handler);
  --g_guards;
}

bool InterruptGuard::requested() { return g_requests > 0; }
int InterruptGuard::signal() { return g_signal; }

bool is_ignored(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_IGN;
}

}  // namespace nibble

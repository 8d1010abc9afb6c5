// SPDX-License-Identifier: MIT
#include "guard/signal_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "guard/interrupt.h"

namespace nibble {
namespace {

std::atomic<int> g_write_end{-1};

extern "C" void write_event(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  const SignalEvent event{signal, info->si_code == SI_KERNEL ? 1 : 0};
  // A full pipe means that events wait already: one more tells nothing new.
  [[maybe_unused]] const ssize_t n = ::write(g_write_end.load(), &event, sizeof event);
  errno = saved;
}

}  // namespace

SignalWatch::SignalWatch(std::initializer_list<int> signals) {
  if (g_write_end.load() >= 0) throw_internal("two signal watches at once");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw_device("cannot make a pipe: {}", std::strerror(errno));
  }
  read_end_ = ends[0];
  g_write_end = ends[1];
  for (const int signal : signals) {
    struct sigaction old {};
    ::sigaction(signal, nullptr, &old);
    if (signal != SIGCHLD && is_ignored(signal)) continue;
    struct sigaction action {};
    action.sa_sigaction = write_event;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigaction(signal, &action, nullptr);
    before_.emplace_back(signal, old);
  }
}

SignalWatch::~SignalWatch() {
  for (const auto& [signal, old] : before_) ::sigaction(signal, &old, nullptr);
  ::close(g_write_end.exchange(-1));
  ::close(read_end_);
}

std::optional<SignalEvent> SignalWatch::next() {
  SignalEvent event;
  if (::read(read_end_, &event, sizeof event) != ssize_t(sizeof event)) return std::nullopt;
  return event;
}

}  // namespace nibble

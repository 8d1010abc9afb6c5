// SPDX-License-Identifier: MIT
#include "guard/interrupt.h"

#include <atomic>
#include <cstdlib>

#include "core/durable/last_words.h"
#include "core/durable/temporary.h"

namespace nibble {
namespace {

std::atomic<int> g_requests{0};
extern "C" void count_request(int signal) {
  if (++g_requests < 2) return;
  remove_temporary_files();
  write_last_words();
  std::_Exit(128 + signal);
}

}  // namespace

InterruptGuard::InterruptGuard(TerminateIs terminate) : terminate_(terminate) {
  g_requests = 0;
  interrupt_before_ = std::signal(SIGINT, count_request);
  if (terminate == TerminateIs::request) terminate_before_ = std::signal(SIGTERM, count_request);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, interrupt_before_);
  if (terminate_ == TerminateIs::request) std::signal(SIGTERM, terminate_before_);
}

bool InterruptGuard::requested() { return g_requests > 0; }

}  // namespace nibble

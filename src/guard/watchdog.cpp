// SPDX-License-Identifier: MIT
#include "guard/watchdog.h"

#include <cstdio>
#include <cstdlib>

#include "core/log.h"
#include "guard/terminal_state.h"

namespace nibble {

Watchdog::Watchdog(std::chrono::milliseconds limit) {
  if (limit.count() == 0) return;
  thread_ = std::thread([this, limit] {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, limit, [this] { return done_; })) return;
    log_line(LogLevel::quiet,
             fmt::format("nibble: error: the turn did not end within {} ms; giving up (exit 124)",
                         limit.count()));
    restore_terminal();
    std::fflush(nullptr);
    std::_Exit(124);
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace nibble

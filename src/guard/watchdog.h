// SPDX-License-Identifier: MIT
// The hard end of a turn that hangs: generation itself checks its time between tokens, and this
// catches the case where no token ever comes. It ends the process, as nothing gentler can.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace nibble {

class Watchdog {
 public:
  // Ends the process with exit code 124 unless it is destroyed within `limit`; 0: never.
  explicit Watchdog(std::chrono::milliseconds limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The hard limit for a soft one: a reply may take a second token's time longer than asked.
  static std::chrono::milliseconds hard_limit(int64_t timeout_ms) {
    return std::chrono::milliseconds(timeout_ms == 0 ? 0 : 2 * timeout_ms + 5000);
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace nibble

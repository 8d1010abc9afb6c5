// SPDX-License-Identifier: MIT
// The thread that runs a schedule, from beginning to end the only one that touches its engine.
#pragma once
#include <atomic>
#include <thread>

#include "serve/schedule/scheduler.h"

namespace nibble {

class EngineThread {
 public:
  explicit EngineThread(Scheduler& schedule);
  ~EngineThread();  // requests that are still there end with an error

  // Takes no more requests and waits until there is none, `at_most` so long; whether there is none.
  bool drain(std::chrono::milliseconds at_most);

 private:
  void run();
  Scheduler& schedule_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace nibble

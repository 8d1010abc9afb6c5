// SPDX-License-Identifier: MIT
// The thread that runs a schedule, from beginning to end the only one that touches its engine.
#pragma once
#include <atomic>
#include <thread>

#include "serve/schedule/request_queue.h"

namespace nibble {

class EngineThread {
 public:
  // The queue is one the schedule is behind; both outlive it.
  EngineThread(Scheduler& schedule, RequestQueue& queue);
  // The queue ends with the first of its threads: requests that are still there, or in the
  // schedule, end with an error.
  ~EngineThread();

 private:
  void run();
  Scheduler& schedule_;
  RequestQueue& queue_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace nibble

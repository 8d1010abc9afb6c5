// SPDX-License-Identifier: MIT
#include "serve/schedule/engine_thread.h"

namespace nibble {

EngineThread::EngineThread(Scheduler& schedule)
    : schedule_(schedule), thread_([this] {
        while (!stop_) {
          if (!schedule_.tick()) schedule_.wait(std::chrono::milliseconds(50));
        }
        schedule_.end_all("the server is ending: what was said until now is all");
      }) {}

EngineThread::~EngineThread() {
  schedule_.close();
  stop_ = true;
  thread_.join();
}

bool EngineThread::drain(std::chrono::milliseconds at_most) {
  schedule_.close();
  const auto end = std::chrono::steady_clock::now() + at_most;
  const auto idle = [&] {
    const SchedulerCounts c = schedule_.counts();
    return c.waiting + c.feeding + c.decoding == 0;
  };
  while (!idle() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return idle();
}

}  // namespace nibble

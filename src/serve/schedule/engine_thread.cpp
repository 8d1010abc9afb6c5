// SPDX-License-Identifier: MIT
#include "serve/schedule/engine_thread.h"

#include "core/log.h"

namespace nibble {

EngineThread::EngineThread(Scheduler& schedule) : schedule_(schedule), thread_([this] { run(); }) {}

void EngineThread::run() {
  while (!stop_) {
    try {
      if (!schedule_.tick()) schedule_.wait(std::chrono::milliseconds(50));
    } catch (const std::exception& e) {
      // No one request is to blame (memory, say): all are told, and the server goes on.
      log_warning("the engine failed, and every request with it: {}", e.what());
      schedule_.end_all("the engine failed; the server's log says why");
    }
  }
  schedule_.end_all("the server is ending: what was said until now is all");
}

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
